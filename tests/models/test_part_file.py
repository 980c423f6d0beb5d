"""Files that appear when they are whole."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from models.errors import CopyError
from models.part_file import PartFile, remove_abandoned


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


def test_two_stages_of_one_file(tmp_path: Path) -> None:
    with PartFile(tmp_path / "model.gguf", stage=".first") as first, PartFile(tmp_path / "model.gguf") as part:
        first.stream.write(b"first")
        part.stream.write(b"content")
        assert sorted(os.listdir(tmp_path)) == ["model.gguf.first.part", "model.gguf.part"]
        part.finish()
    assert os.listdir(tmp_path) == ["model.gguf"]
    assert (tmp_path / "model.gguf").read_bytes() == b"content"


def test_only_what_nobody_comes_back_to_is_removed(tmp_path: Path) -> None:
    """Neither what is being written, however slowly, nor a recent download of a browser, nor anything else."""
    names = ("old.gguf.part", "new.gguf.part", "busy.gguf.part", "old.gguf")
    for name in names:
        (tmp_path / name).touch()
    with PartFile(tmp_path / "busy.gguf"):
        for name in names:
            age_s = 60 if name.startswith("new") else 2 * 24 * 3600
            os.utime(tmp_path / name, (time.time() - age_s,) * 2)
        remove_abandoned(tmp_path)
        assert sorted(os.listdir(tmp_path)) == ["busy.gguf.part", "new.gguf.part", "old.gguf"]
