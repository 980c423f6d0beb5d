"""`octavo quantize`: the real command, from every kind of source, and when it is stopped in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from app.quantize_source import find_source
from app.terminal import StatusLine
from engine.errors import OctavoError
from engine.gguf_file import GgufFile
from models.catalogue import Catalogue, Origin
from models.conversion.safetensors_file import StoredTensor
from models.quantization.types import FILE_TYPES
from tests.app.command import ROOT, environment, octavo, octavo_here, start
from tests.app.terminal import on_a_terminal
from tests.app.test_interrupt import interrupt_when
from tests.hub_server import Hub
from tests.models.quantization.test_quantize import assert_runs_in_both_engines
from tests.tiny_checkpoint import write_checkpoint
from tests.tiny_gguf import write_tiny

STARTER = "SmolLM2-135M-Instruct.Q4_1"
LONG = ("IQ3_S", "--allow-requantize", "--threads", "1")
"""What takes seconds, to be stopped in the middle."""


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, for this process and those that it starts."""
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny-F16.gguf", ff=128, tokenizer="gpt2", weight_type="F16")


def made(data: Path) -> list[str]:
    return sorted(os.listdir(data / "models")) if (data / "models").exists() else []


def quantized(*arguments: str) -> str:
    """What a command that succeeds prints."""
    result = octavo_here("quantize", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def one_sentence(*arguments: str) -> str:
    """What a command that fails says."""
    result = octavo_here("quantize", *arguments)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    return line


def test_the_starter_model(data: Path) -> None:
    """Its rows of 576 do not divide into blocks of 256: most of a Q4_K_M is something else."""
    text = quantized(STARTER, "Q8_0", "--allow-requantize", "--dry-run")
    assert "5.74 to 8.51 bits per weight" in text
    assert "fall" not in text
    result = octavo("quantize", STARTER, "q4_k", "--allow-requantize", "--json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["name"] == "SmolLM2-135M-Instruct-Q4_K_M"
    file = data / "models" / "SmolLM2-135M-Instruct-Q4_K_M.gguf"
    tensors = GgufFile.open(file).tensors  # gguf's reader takes two seconds for the tokens
    odd = {name for name, tensor in tensors.items() if len(tensor.shape) > 1 and tensor.shape[0] == 576}
    assert {fallback["name"] for fallback in plan["fallbacks"]} == odd
    assert len(odd) == 181
    assert plan["bytes_after"] == file.stat().st_size
    assert made(data) == [file.name]
    assert_runs_in_both_engines(file)


def test_it_is_installed(tiny: Path, data: Path) -> None:
    text = quantized(str(tiny), "Q8_0", "--check")
    assert "octavo run tiny-Q8_0" in text
    assert "in 255 predictions" in text
    assert all(len(line) <= 80 for line in text.splitlines() if str(data) not in line)
    elsewhere = tiny.with_name("mine.gguf")
    quantized(str(tiny), "Q4_0", "-o", str(elsewhere))
    installed = {model.name: model for model in Catalogue().models()}
    assert (installed["tiny-Q8_0"].origin, installed["tiny-Q8_0"].source) == (Origin.MADE, str(tiny))
    assert (installed["mine"].origin, installed["mine"].path) == (Origin.LINKED, elsewhere)


def test_an_earlier_output_is_replaced_only_with_leave(tiny: Path, data: Path) -> None:
    out = data / "models" / "tiny-Q8_0.gguf"
    out.parent.mkdir(parents=True)
    out.write_bytes(b"earlier")
    assert "--yes" in one_sentence(str(tiny), "Q8_0")
    screen, code = on_a_terminal(["quantize", str(tiny), "Q8_0"], "? [y/N]: ", ["n"])
    assert code == 1
    assert f"Replace '{out}'?" in screen
    assert out.read_bytes() == b"earlier"
    quantized(str(tiny), "Q8_0", "--yes")
    assert len(GGUFReader(out).tensors) == 21
    assert made(data) == ["tiny-Q8_0.gguf"]


def test_a_dry_run_writes_nothing(tiny: Path, data: Path) -> None:
    text = quantized(str(tiny), "Q4_K_M", "--dry-run")
    assert "16 of 21 tensors" in text
    assert "of disk" in text
    assert "of memory" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    plan = json.loads(quantized(str(tiny), "Q4_K_M", "--dry-run", "--json"))
    assert len(plan["fallbacks"]) == 16
    assert made(data) == []


def test_refusals(data: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--allow-requantize" in one_sentence(STARTER, "Q4_K_M")
    assert "There is no model file 'no/where.gguf'" in one_sentence("no/where.gguf", "Q8_0")
    assert "a projector" in one_sentence(str(write_tiny(tmp_path / "clip.gguf", "clip")), "Q8_0")
    assert "unknown model architecture: 'foo'" in one_sentence(str(write_tiny(tmp_path / "foo.gguf", "foo")), "Q8_0")
    assert octavo_here("quantize", STARTER).returncode == 2
    assert octavo_here("quantize", "", "Q8_0").returncode == 2
    assert made(data) == []
    for source in (tiny, write_checkpoint(tmp_path / "Tiny").folder):
        out = tmp_path / ("a" * 248 + ".gguf")  # with .part it is too long
        assert f"{out}' cannot be written (File name too long)" in one_sentence(str(source), "Q8_0", "-o", str(out))
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tiny))
    assert "OCTAVO_DATA_DIR" in one_sentence(str(tmp_path / "foo.gguf"), "Q8_0", "-o", str(tiny / "models" / "x.gguf"))


def test_what_is_no_file_is_not_replaced(data: Path, tiny: Path, tmp_path: Path) -> None:
    """A rename would put the model in the place of a device."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for out in (pipe, link):
        assert "no file" in one_sentence(str(tiny), "Q8_0", "--yes", "-o", str(out))
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_names_that_are_not_unicode(data: Path, tiny: Path, tmp_path: Path) -> None:
    source = os.fsencode(tmp_path) + b"/od\xffd\n-F16.gguf"
    os.link(tiny, source)
    quantized(os.fsdecode(source), "Q8_0", "--json")
    (entry,) = (model for model in Catalogue().models() if model.origin is Origin.MADE)
    assert entry.name == "od-d-Q8_0"
    assert entry.source.isprintable()


def test_the_result_is_told_though_the_comparison_fails(data: Path, tmp_path: Path) -> None:
    tiny = write_tiny(tmp_path / "tiny-F16.gguf", ff=128, context=1, tokenizer="gpt2", weight_type="F16")
    result = octavo_here("quantize", str(tiny), "Q8_0", "--check", "--json")
    assert result.returncode == 1
    assert "too short to compare" in result.stderr
    assert json.loads(result.stdout)["name"] == "tiny-Q8_0"


def test_the_table_of_types(data: Path) -> None:
    screen, code = on_a_terminal(["quantize", "--types"], columns=80)
    assert code == 0
    assert all(file_type.name in screen for file_type in FILE_TYPES)
    assert "…" not in screen
    (object_,) = [json.loads(line) for line in quantized("--types", "--json").splitlines()]
    assert {entry["name"]: entry["needs_imatrix"] for entry in object_["types"]} == {
        file_type.name: file_type.needs_imatrix for file_type in FILE_TYPES
    }


def test_interrupted(data: Path) -> None:
    """Ctrl-C when the first blocks are being written."""
    output, errors = interrupt_when("blk.", "quantize", STARTER, *LONG, variables={"TERM": "xterm"})
    assert b"installed" not in output
    assert "Traceback" not in errors
    assert made(data) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["killed", "the terminal is closed"])
def test_ended(data: Path, tiny: Path, number: signal.Signals) -> None:
    """Nothing of the command lives on, and the next one is not disturbed by what it left."""
    usual = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # processes inherit that nohup(1) has it ignored
    process = start("quantize", STARTER, *LONG)
    signal.signal(signal.SIGHUP, usual)
    part = data / "models" / "SmolLM2-135M-Instruct-IQ3_S.gguf.part"
    while not part.exists() or not part.stat().st_size:
        assert process.poll() is None
        time.sleep(0.01)
    (child,) = children_of(process.pid)
    process.send_signal(number)
    process.wait()
    while os.path.exists(f"/proc/{child}") and "Z" not in Path(f"/proc/{child}/stat").read_text().split():
        time.sleep(0.01)  # the test's own time limit is the only one
    assert made(data) == ([part.name] if number is signal.SIGKILL else [])
    quantized(str(tiny), "Q8_0", "-o", str(part.with_suffix("")))
    assert made(data) == [part.stem]


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_killed_commands_left_long_ago_goes(tiny: Path, data: Path) -> None:
    (data / "models").mkdir(parents=True)
    for name, age_s in (("old.gguf.part", 90_000), ("new.gguf.part", 60)):
        (data / "models" / name).touch()
        os.utime(data / "models" / name, (time.time() - age_s,) * 2)
    quantized(str(tiny), "Q8_0", "--dry-run")
    assert made(data) == ["new.gguf.part"]


def test_a_disk_that_fills_up(tiny: Path, data: Path) -> None:
    """A limit on the size of files stops a write as a full disk does."""
    out = data / "models" / "tiny-Q8_0.gguf"
    out.parent.mkdir(parents=True)
    out.write_bytes(b"earlier")
    command = [sys.executable, "-m", "app", "quantize", str(tiny), "Q8_0", "--yes"]
    result = subprocess.run(
        ["sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", *command],
        cwd=ROOT,
        env=environment(),
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


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_from_a_checkpoint(tmp_path: Path, data: Path, kind: str) -> None:
    """In its own type it is kept as converted; in another one it is quantized, and the conversion does not stay."""
    folder = write_checkpoint(tmp_path / "Tiny", dtype="F16").folder
    plan = json.loads(quantized(str(folder), kind, "--check", "--json"))
    assert (plan["disk_needed"] > plan["bytes_before"]) == (kind == "Q8_0")
    assert (plan["quality"]["divergence"] == 0) == (kind == "F16")
    assert made(data) == [f"Tiny-{kind}.gguf"]
    types = {t.name: t.tensor_type.name for t in GGUFReader(data / "models" / f"Tiny-{kind}.gguf").tensors}
    assert types["blk.0.ffn_up.weight"] == kind


def test_a_checkpoint_is_not_converted_in_vain(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wanted, allowed and possible is known before the first weight is read."""
    folder = write_checkpoint(tmp_path / "Tiny", dtype="F16").folder
    out = data / "models" / "Tiny-Q8_0.gguf"
    out.parent.mkdir(parents=True)
    out.write_bytes(b"earlier")

    def read(_: StoredTensor) -> np.ndarray:
        raise AssertionError

    monkeypatch.setattr(StoredTensor, "read", read)
    plan = json.loads(quantized(str(folder), "Q8_0", "--dry-run", "--json"))
    assert (round(plan["bits_before"], 2), round(plan["bits_after"], 2)) == (16.05, 8.58)
    assert "--yes" in one_sentence(str(folder), "Q8_0")
    assert "--strict" in one_sentence(str(folder), "Q4_K_M", "--strict")
    monkeypatch.setattr("models.quantization.quantize.free_disk", lambda _out: plan["disk_needed"] - 1)
    assert "make room" in one_sentence(str(folder), "Q8_0", "--yes")
    assert made(data) == [out.name]


def test_from_the_hub(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    """Of several GGUF files the best to start from; of a checkpoint the weights, when its configuration is fit.

    A checkpoint is better than a GGUF that has lost something already.
    """
    small = write_tiny(tmp_path / "small", ff=128, weight_type="Q4_0").read_bytes()
    hub.add("me/Tiny-GGUF", {"Tiny-F16.gguf": tiny.read_bytes(), "Tiny-Q4_0.gguf": small})
    quantized("me/Tiny-GGUF", "Q8_0")
    assert hub.downloads("Tiny-Q4_0.gguf") == []
    installed = {model.name: model for model in Catalogue().models()}
    assert installed["Tiny-Q8_0"].source == "me/Tiny-GGUF"
    assert installed["Tiny-F16"].origin is Origin.PULLED

    folder = write_checkpoint(tmp_path / "checkpoint").folder
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    hub.add("me/Whole", files | {"Whole-Q8_0.gguf": small})
    quantized("me/Whole", "Q8_0")
    assert "Whole-Q8_0" in {model.name for model in Catalogue().models()}

    (folder / "config.json").write_text(json.dumps({"architectures": ["FalconForCausalLM"]}))
    hub.add("me/Other", {file.name: file.read_bytes() for file in folder.iterdir()})
    assert "FalconForCausalLM" in one_sentence("me/Other", "Q8_0")
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
