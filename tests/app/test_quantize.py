"""`octavo quantize`: the real command, from every kind of source, and when it is stopped in every way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from gguf import GGUFReader

from app.quantize_source import find_source
from app.terminal import StatusLine
from engine.errors import OctavoError
from models.catalogue import Catalogue, Origin
from models.quantize_types import FILE_TYPES
from tests.app.command import ROOT, environment, octavo, start
from tests.app.test_interrupt import interrupt_when
from tests.hub_server import Hub
from tests.models.test_quantize import assert_runs_in_both_engines
from tests.tiny_checkpoint import write_checkpoint
from tests.tiny_gguf import write_tiny

STARTER = "SmolLM2-135M-Instruct.Q4_1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def variables(data: Path) -> dict[str, str]:
    return {"OCTAVO_DATA_DIR": str(data)}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny-F16.gguf", ff=128, tokenizer="gpt2", weight_type="F16")


def made(data: Path) -> list[str]:
    return sorted(os.listdir(data / "models")) if (data / "models").exists() else []


def one_sentence(*arguments: str, variables: Mapping[str, str]) -> str:
    result = octavo("quantize", *arguments, variables=variables)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.splitlines()
    return line


def test_the_starter_model_twice(data: Path, variables: dict[str, str]) -> None:
    """Its rows of 576 do not divide into blocks of 256: most of a Q4_K_M is something else."""
    first = octavo("quantize", STARTER, "Q8_0", "--allow-requantize", variables=variables)
    assert first.returncode == 0, first.stderr
    assert "5.74 to 8.51 bits per weight" in first.stdout
    assert "fall" not in first.stdout
    name = "SmolLM2-135M-Instruct-Q8_0"
    second = octavo("quantize", name, "q4_k", "--allow-requantize", "--json", variables=variables)
    assert second.returncode == 0, second.stderr
    result = json.loads(second.stdout)
    assert result["name"] == "SmolLM2-135M-Instruct-Q4_K_M"
    file = data / "models" / "SmolLM2-135M-Instruct-Q4_K_M.gguf"
    odd = {str(tensor.name) for tensor in GGUFReader(file).tensors if len(tensor.shape) > 1 and tensor.shape[0] == 576}
    assert {fallback["name"] for fallback in result["fallbacks"]} == odd
    assert result["bytes_after"] == file.stat().st_size
    assert made(data) == ["SmolLM2-135M-Instruct-Q4_K_M.gguf", "SmolLM2-135M-Instruct-Q8_0.gguf"]
    assert_runs_in_both_engines(file)


def test_it_is_installed(tiny: Path, data: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = octavo("quantize", str(tiny), "Q8_0", "--check", variables=variables)
    assert result.returncode == 0, result.stderr
    assert "octavo run tiny-Q8_0" in result.stdout
    assert "In 255 predictions: perplexity" in result.stdout
    elsewhere = tiny.with_name("mine.gguf")
    assert octavo("quantize", str(tiny), "Q4_0", "-o", str(elsewhere), variables=variables).returncode == 0
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(data))
    installed = {model.name: model for model in Catalogue().models()}
    assert (installed["tiny-Q8_0"].origin, installed["tiny-Q8_0"].source) == (Origin.MADE, str(tiny))
    assert (installed["mine"].origin, installed["mine"].path) == (Origin.LINKED, elsewhere)


def test_an_earlier_output_is_replaced_only_with_leave(tiny: Path, data: Path, variables: dict[str, str]) -> None:
    out = data / "models" / "tiny-Q8_0.gguf"
    out.parent.mkdir(parents=True)
    out.write_bytes(b"earlier")
    line = octavo("quantize", str(tiny), "Q8_0", variables=variables)
    assert line.returncode == 1
    assert "--yes" in line.stderr
    assert out.read_bytes() == b"earlier"
    assert octavo("quantize", str(tiny), "Q8_0", "--yes", variables=variables).returncode == 0
    assert len(GGUFReader(out).tensors) == 21
    assert made(data) == ["tiny-Q8_0.gguf"]


def test_a_dry_run_writes_nothing(tiny: Path, data: Path, variables: dict[str, str]) -> None:
    text = octavo("quantize", str(tiny), "Q4_K_M", "--dry-run", variables=variables)
    assert text.returncode == 0
    assert "16 of 21 tensors" in text.stdout
    assert "of disk" in text.stdout
    assert "of memory" in text.stdout
    plan = json.loads(octavo("quantize", str(tiny), "Q4_K_M", "--dry-run", "--json", variables=variables).stdout)
    assert len(plan["fallbacks"]) == 16
    assert made(data) == []


def test_refusals(data: Path, variables: dict[str, str]) -> None:
    again = octavo("quantize", STARTER, "Q4_K_M", variables=variables)
    assert again.returncode == 1
    assert "--allow-requantize" in again.stderr
    line = one_sentence("no/where.gguf", "Q8_0", variables=variables)
    assert "There is no model file 'no/where.gguf'" in line
    assert octavo("quantize", STARTER, variables=variables).returncode == 2
    assert made(data) == []


def test_the_table_of_types() -> None:
    table = octavo("quantize", "--types").stdout
    assert all(file_type.name in table for file_type in FILE_TYPES)
    (object_,) = [json.loads(line) for line in octavo("quantize", "--types", "--json").stdout.splitlines()]
    assert {entry["name"]: entry["needs_imatrix"] for entry in object_["types"]} == {
        file_type.name: file_type.needs_imatrix for file_type in FILE_TYPES
    }


def test_interrupted(data: Path, variables: dict[str, str]) -> None:
    """Ctrl-C when the first blocks are being written."""
    output, errors = interrupt_when(
        "blk.", "quantize", STARTER, "IQ3_S", "--allow-requantize", variables=variables | {"TERM": "xterm"}
    )
    assert b"installed" not in output
    assert "Traceback" not in errors
    assert made(data) == []


def test_killed(data: Path, variables: dict[str, str]) -> None:
    """Nothing of the command lives on, and the next one is not disturbed by what it left."""
    process = start("quantize", STARTER, "IQ3_S", "--allow-requantize", variables=variables)
    part = data / "models" / "SmolLM2-135M-Instruct-IQ3_S.gguf.part"
    while not part.exists() or not part.stat().st_size:
        assert process.poll() is None
        time.sleep(0.01)
    (child,) = children_of(process.pid)
    process.kill()
    process.wait()
    while os.path.exists(f"/proc/{child}") and "Z" not in Path(f"/proc/{child}/stat").read_text().split():
        time.sleep(0.01)  # the test's own time limit is the only one
    assert made(data) == [part.name]
    result = octavo(
        "quantize", STARTER, "Q8_0", "--allow-requantize", "-o", str(part.with_suffix("")), variables=variables
    )
    assert result.returncode == 0, result.stderr
    assert made(data) == [part.stem]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_disk_that_fills_up(tiny: Path, data: Path, variables: dict[str, str]) -> None:
    """A limit on the size of files stops a write as a full disk does."""
    out = data / "models" / "tiny-Q8_0.gguf"
    out.parent.mkdir(parents=True)
    out.write_bytes(b"earlier")
    command = [sys.executable, "-m", "app", "quantize", str(tiny), "Q8_0", "--yes"]
    result = subprocess.run(
        ["sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", *command],
        cwd=ROOT,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 1
    assert "the disk is full" in result.stderr
    assert "Traceback" not in result.stderr
    assert made(data) == [out.name]
    assert out.read_bytes() == b"earlier"


@pytest.mark.parametrize(("type_name", "kind"), [("F16", "F16"), ("Q8_0", "Q8_0")])
def test_from_a_checkpoint(tmp_path: Path, data: Path, variables: dict[str, str], type_name: str, kind: str) -> None:
    """In its own type it is kept as converted; in another one it is quantized, and the conversion does not stay."""
    folder = write_checkpoint(tmp_path / "Tiny", dtype="F16").folder
    result = octavo("quantize", str(folder), type_name, variables=variables)
    assert result.returncode == 0, result.stderr
    assert made(data) == [f"Tiny-{kind}.gguf"]
    types = {t.name: t.tensor_type.name for t in GGUFReader(data / "models" / f"Tiny-{kind}.gguf").tensors}
    assert types["blk.0.ffn_up.weight"] == kind


def test_from_the_hub(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    """Of several GGUF files the best to start from; of a checkpoint the weights, when its configuration is fit."""
    small = write_tiny(tmp_path / "small", ff=128, weight_type="Q4_0").read_bytes()
    hub.add("me/Tiny-GGUF", {"Tiny-F16.gguf": tiny.read_bytes(), "Tiny-Q4_0.gguf": small})
    result = octavo("quantize", "me/Tiny-GGUF", "Q8_0")
    assert result.returncode == 0, result.stderr
    assert hub.downloads("Tiny-Q4_0.gguf") == []
    installed = {model.name: model for model in Catalogue().models()}
    assert installed["Tiny-Q8_0"].source == "me/Tiny-GGUF"
    assert installed["Tiny-F16"].origin is Origin.PULLED

    folder = write_checkpoint(tmp_path / "checkpoint").folder
    hub.add("me/Whole", {file.name: file.read_bytes() for file in folder.iterdir()})
    result = octavo("quantize", "me/Whole", "Q8_0")
    assert result.returncode == 0, result.stderr
    assert "Whole-Q8_0" in {model.name for model in Catalogue().models()}

    (folder / "config.json").write_text(json.dumps({"architectures": ["FalconForCausalLM"]}))
    hub.add("me/Other", {file.name: file.read_bytes() for file in folder.iterdir()})
    result = octavo("quantize", "me/Other", "Q8_0")
    assert result.returncode == 1
    assert "FalconForCausalLM" in result.stderr
    assert [request for request in hub.downloads("model.safetensors") if "Other" in str(request)] == []


def test_what_the_hub_has_not(hub: Hub, tmp_path: Path) -> None:
    small = write_tiny(tmp_path / "small", weight_type="Q4_0", ff=128).read_bytes()
    hub.add("me/Small-GGUF", {"Small-Q4_0.gguf": small})
    hub.add("me/Two-GGUF", {"One-F16.gguf": small, "Two-F16.gguf": small})
    hub.add("me/Text", {"README.md": b"text"})
    for words, reference in (
        ("to start from", "me/Small-GGUF"),
        ("no 'Q9' in me/Small-GGUF", "me/Small-GGUF:Q9"),
        ("several models", "me/Two-GGUF"),
        ("holds no model", "me/Text"),
        ("--allow-requantize", "me/Small-GGUF:Q4_0"),
    ):
        with pytest.raises(OctavoError, match=words):
            find_source(reference, allow_requantize=False, status=StatusLine())
    assert hub.downloads("Small-Q4_0.gguf") == []
