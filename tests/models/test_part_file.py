"""Files that appear when they are whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from models.errors import CopyError
from models.part_file import PartFile


def test_it_appears_when_it_is_finished(tmp_path: Path) -> None:
    with PartFile(tmp_path / "model.gguf") as part:
        part.stream.write(b"content")
        assert os.listdir(tmp_path) == ["model.gguf.part"]
        part.finish()
        assert os.listdir(tmp_path) == ["model.gguf"]
    assert (tmp_path / "model.gguf").read_bytes() == b"content"


@pytest.mark.parametrize("finished", [False, True])
def test_an_error_removes_it(tmp_path: Path, finished: bool) -> None:
    def fail() -> None:
        with PartFile(tmp_path / "model.gguf") as part:
            if finished:
                part.finish()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.listdir(tmp_path) == []


def test_unfinished_it_vanishes(tmp_path: Path) -> None:
    with PartFile(tmp_path / "model.gguf"):
        pass
    assert os.listdir(tmp_path) == []


def test_what_a_killed_command_left_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.gguf.part").write_bytes(b"longer than what is written now")
    with PartFile(tmp_path / "model.gguf") as part:
        part.stream.write(b"content")
        part.finish()
    assert (tmp_path / "model.gguf").read_bytes() == b"content"


def test_two_cannot_write_the_same(tmp_path: Path) -> None:
    with PartFile(tmp_path / "model.gguf") as part:
        part.stream.write(b"content")
        with pytest.raises(CopyError, match="Another command"):
            PartFile(tmp_path / "model.gguf").__enter__()
        part.finish()
    assert (tmp_path / "model.gguf").read_bytes() == b"content"


def test_a_file_that_has_come_meanwhile_is_kept(tmp_path: Path) -> None:
    def finish_late() -> None:
        with PartFile(tmp_path / "model.gguf") as part:
            (tmp_path / "model.gguf").write_bytes(b"of another")
            part.finish()

    with pytest.raises(CopyError, match="already a file"):
        finish_late()
    assert os.listdir(tmp_path) == ["model.gguf"]
    assert (tmp_path / "model.gguf").read_bytes() == b"of another"


def test_a_replaced_file_outlives_an_error(tmp_path: Path) -> None:
    target = tmp_path / "model.gguf"
    target.write_bytes(b"earlier")

    def fail() -> None:
        with PartFile(target, replaces=True) as part:
            part.stream.write(b"content")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_bytes() == b"earlier"
    with PartFile(target, replaces=True) as part:
        part.stream.write(b"content")
        part.finish()
    assert target.read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["model.gguf"]
