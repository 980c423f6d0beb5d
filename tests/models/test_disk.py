"""Room on disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from models.disk import free_bytes


@pytest.mark.parametrize("name", ["", "not/there/yet", "file/below"])
def test_the_disk_is_that_of_the_nearest_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    asked: list[Path] = []
    usage = shutil.disk_usage

    def disk_usage(path: Path) -> object:
        asked.append(path)
        return usage(path)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    monkeypatch.chdir(tmp_path)
    assert free_bytes(Path(name)) > 0
    assert asked == [tmp_path]
