"""Every command that opens a model file refuses every malformed one with a sentence, at once and in little memory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.app.measured import measured
from tests.malformed import BAD, HOSTILE, SPARSE, STRING, gguf, key, tensor, text, write_malformed
from tests.tiny_gguf import write_tiny

MOST_MEMORY = 200 * 10**6
OPENING = ("show", "import")
"""Commands that open a model file in their own process."""
SAMPLE = ("magic", "array of 1 GiB", "half of a model")
"""Files for which `octavo run` is started, which opens them in a second process."""

Said = tuple[int, str, str]


@pytest.fixture(scope="module")
def malformed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("malformed")
    whole = write_tiny(folder / "whole.gguf", tokenizer="gpt2")
    return write_malformed(folder, whole)


def run_all(command_lines: Sequence[Sequence[str]], data: Path) -> list[Said]:
    """What each of the command lines says; all run in one process, which takes no more memory than it may."""
    result = measured(
        ["-m", "tests.app.many_commands"],
        stdin=json.dumps(command_lines),
        variables={"OCTAVO_DATA_DIR": str(data)},
    )
    assert result.code == 0, result.stderr
    assert result.peak < MOST_MEMORY
    return [tuple(said) for said in json.loads(result.stdout)]


def check_refusal(said: Said) -> str:
    """A failing command says one sentence and nothing else; returns it."""
    code, stdout, stderr = said
    assert code == 1, said
    assert stdout == ""
    (line,) = stderr.splitlines()
    assert line.startswith("octavo: ")
    assert line.endswith(".")
    assert line.isprintable()
    return line


def test_every_malformed_file_is_refused(malformed: dict[str, Path], tmp_path: Path) -> None:
    lines = [[command, str(path)] for path in malformed.values() for command in ("load", *OPENING)]
    assert len(malformed) > len(BAD) + len(SPARSE)
    for (_, path), said in zip(lines, run_all(lines, tmp_path), strict=True):
        assert Path(path).name[:20] in check_refusal(said)


@pytest.mark.parametrize("name", SAMPLE)
def test_run_refuses_them_in_one_sentence(name: str, malformed: dict[str, Path], tmp_path: Path) -> None:
    path = malformed[name]
    result = measured(["-m", "app", "run", str(path), "Hi"], variables={"OCTAVO_DATA_DIR": str(tmp_path)})
    assert path.name in check_refusal((result.code, result.stdout, result.stderr))
    assert result.peak < MOST_MEMORY


@pytest.mark.parametrize("engine", ["paged", "contiguous"])
def test_a_vocabulary_on_which_llama_cpp_aborts(engine: str, tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = tiny_model(tokenizer="gpt2", metadata={"tokenizer.ggml.tokens": ["twice"] * 272})
    result = measured(["-m", "app", "run", str(path), "Hi", "--engine", engine])
    assert "GGML_ASSERT" in check_refusal((result.code, result.stdout, result.stderr))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_what_is_no_file(tmp_path: Path) -> None:
    """Nothing blocks on a pipe that nobody writes to, or reads a device that never ends."""
    fifo, loop, gone = tmp_path / "fifo.gguf", tmp_path / "loop.gguf", tmp_path / "gone.gguf"
    os.mkfifo(fifo)
    loop.symlink_to(loop)
    gone.symlink_to("nowhere")
    in_a_file = tmp_path / "file" / "model.gguf"
    (tmp_path / "file").touch()
    odd = [tmp_path / name for name in ("new\nline.gguf", "esc\x1b[2J.gguf", "tab\t.gguf")]
    for path in odd:
        path.write_bytes(b"GGUF")
    paths = [tmp_path, fifo, Path("/dev/zero"), loop, gone, in_a_file, tmp_path / ("x" * 300), *odd]
    lines = [[command, str(path)] for path in [*paths, ""] for command in OPENING]
    for said in run_all(lines, tmp_path / "data"):
        check_refusal(said)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("command", OPENING)
def test_a_file_that_may_not_be_read(command: str, tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(gguf())
    path.chmod(0)
    (said,) = run_all([[command, str(path)]], tmp_path)
    assert "permissions" in check_refusal(said)


def test_hostile_metadata_is_shown_and_not_obeyed(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    evil = HOSTILE.decode()
    path = tiny_model(
        tokenizer="gpt2",
        chat_template=f"{evil}{{{{ messages }}}}",
        metadata={"general.name": evil, f"evil.{evil}": evil, "general.tags": [evil, evil]},
    )
    shown, imported = run_all([[command, str(path)] for command in OPENING], tmp_path)
    for code, stdout, stderr in (shown, imported):
        assert (code, stderr) == (0, "")
        assert stdout.replace("\n", "").isprintable()
    assert "␛]52;c" in shown[1]


def test_hostile_names_in_a_file_of_no_known_kind(tmp_path: Path) -> None:
    """An architecture and a tensor that are only there to be printed."""
    path = tmp_path / "evil.gguf"
    name = HOSTILE[:40]
    path.write_bytes(gguf((key(b"general.architecture", STRING, text(HOSTILE)),), (tensor(name, (8,)),), bytes(32)))
    for code, stdout, stderr in run_all([[command, str(path)] for command in OPENING], tmp_path):
        assert code in (0, 1)
        assert (stdout + stderr).replace("\n", "").isprintable()


def test_the_measurement_sees_memory_and_signals() -> None:
    took = measured(["-c", f"x = b'x' * {MOST_MEMORY}"])
    assert (took.code, took.peak > MOST_MEMORY) == (0, True)
    assert measured(["-c", "pass"]).peak < MOST_MEMORY / 5
    assert measured(["-c", "import os; os.abort()"]).code < 0
