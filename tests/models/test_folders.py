"""The folders, and the variables that move them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from models.folders import cache_folder, config_folder, data_folder, models_folder

FOLDERS = {"OCTAVO_DATA_DIR": data_folder, "OCTAVO_CACHE_DIR": cache_folder, "OCTAVO_CONFIG_DIR": config_folder}


@pytest.mark.parametrize(("variable", "folder"), FOLDERS.items())
def test_each_can_be_moved(
    variable: str, folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(variable, raising=False)
    usual = folder()
    assert usual.is_absolute()
    assert usual.name == "octavo"
    monkeypatch.setenv(variable, "")
    assert folder() == usual
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for value, moved in (
        ("/elsewhere", Path("/elsewhere")),
        ("here/../there", tmp_path / "there"),
        ("~/octavo", tmp_path / "home" / "octavo"),
        ("~nobody-of-that-name/octavo", tmp_path / "~nobody-of-that-name" / "octavo"),
    ):
        monkeypatch.setenv(variable, value)
        assert folder() == moved


def test_models_are_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DATA_DIR", "/elsewhere")
    assert models_folder() == Path("/elsewhere/models")
