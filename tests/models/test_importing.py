"""Which files are models, and how they become installed ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from engine.errors import ModelFileError
from models.catalogue import Catalogue, Origin
from models.errors import CatalogueError, CopyError, NotALanguageModel
from models.folders import models_folder
from models.importing import candidate_of, install
from tests.split_gguf import split_gguf
from tests.tiny_gguf import write_tiny

Tiny = Callable[..., Path]


@pytest.fixture(autouse=True)
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """An empty one; without the starter model, which has an entry of its own everywhere."""
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("models.catalogue.starter_file", lambda: None)
    return Catalogue()


def write_split(folder: Path) -> list[Path]:
    """A model in three files, big-00001-of-00003.gguf and so on, and not in one."""
    whole = write_tiny(folder / "big.gguf", tokenizer="gpt2")
    shards = split_gguf(whole, 8)
    whole.unlink()
    assert len(shards) == 3
    return list(shards)


def copy_silently(done: int, total: int) -> None:
    assert 0 < done <= total


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"metadata": {"general.type": "adapter"}}, "an adapter"),
        ({"metadata": {"general.type": "mmproj"}}, "a projector"),
        ({"metadata": {"general.type": "imatrix"}}, "an importance matrix"),
        ({"architecture": "clip"}, "a projector"),
        ({"architecture": "controlvector"}, "a control vector"),
        ({"tensors": {"token_embd.weight": None}}, "no language model"),
        ({"architecture": "bert", "keys": {"attention.causal": False}}, "an embedding or diffusion model"),
    ],
)
def test_what_is_no_language_model(tiny_model: Tiny, options: dict[str, Any], what: str) -> None:
    with pytest.raises(NotALanguageModel, match=rf"tiny-0\.gguf' is {what}.*: give the file of a language model\.$"):
        candidate_of(tiny_model(**options))


def test_a_vocabulary_is_no_language_model(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "ggml-vocab.gguf", "llama")
    writer.add_token_list(["a", "b"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(NotALanguageModel, match="only a vocabulary"):
        candidate_of(tmp_path / "ggml-vocab.gguf")


def test_a_model_that_says_its_type_is_one(tiny_model: Tiny) -> None:
    path = tiny_model(metadata={"general.type": "model"})
    assert candidate_of(path).files == (path,)


def test_damage_is_told(tiny_model: Tiny) -> None:
    path = tiny_model()
    os.truncate(path, os.path.getsize(path) - 64)
    with pytest.raises(ModelFileError, match="not downloaded completely"):
        candidate_of(path)


def test_any_shard_stands_for_all(tmp_path: Path) -> None:
    shards = write_split(tmp_path)
    for shard in shards:
        candidate = candidate_of(shard)
        assert candidate.files == tuple(shards)
        assert candidate.name == "big"
        assert candidate.n_bytes == sum(os.path.getsize(shard) for shard in shards)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_shard_is_named(tmp_path: Path, missing: int) -> None:
    shards = write_split(tmp_path)
    shards[missing].unlink()
    given = shards[2 if missing == 1 else 1]
    with pytest.raises(ModelFileError, match=shards[missing].name):
        candidate_of(given)


def test_a_link_stays_a_link(tiny_model: Tiny, tmp_path: Path, catalogue: Catalogue) -> None:
    link = tmp_path / "My Model (v2).gguf"
    link.symlink_to(tiny_model())
    model = install(candidate_of(link), catalogue).model
    assert model.path == link
    assert (model.name, model.origin, model.source) == ("My-Model-v2", Origin.LINKED, str(link))
    assert catalogue.find("my-model-v2") == model


def test_a_relative_path_is_made_absolute(
    tiny_model: Tiny, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny_model()
    monkeypatch.chdir(path.parent)
    assert install(candidate_of(Path(path.name)), catalogue).model.path == path


def test_the_same_file_twice(tiny_model: Tiny, tmp_path: Path, catalogue: Catalogue) -> None:
    path = tiny_model()
    other_path = tmp_path / "other.gguf"
    os.link(path, other_path)
    first = install(candidate_of(path), catalogue, "first")
    assert not first.was_there
    for again in (path, other_path):
        outcome = install(candidate_of(again), catalogue)
        assert outcome.was_there
        assert outcome.model.name == "first"
    assert [model.name for model in catalogue.models()] == ["first"]


def test_names_that_are_taken(tiny_model: Tiny, catalogue: Catalogue) -> None:
    one, other = tiny_model(), tiny_model(seed=1)
    install(candidate_of(one), catalogue, "same")
    with pytest.raises(CatalogueError, match="'same' is already the name of another model"):
        install(candidate_of(other), catalogue, "SAME")
    assert install(candidate_of(other)._replace(name="same"), catalogue).model.name == "same-2"


def test_a_copy(tiny_model: Tiny, catalogue: Catalogue) -> None:
    path = tiny_model()
    model = install(candidate_of(path), catalogue, "mine", copy_silently).model
    assert (model.path, model.origin, model.source) == (models_folder() / "mine.gguf", Origin.COPIED, str(path))
    assert model.path.read_bytes() == path.read_bytes()
    assert os.listdir(models_folder()) == ["mine.gguf"]
    again = install(candidate_of(path), catalogue, None, copy_silently)
    assert again.was_there
    assert again.model.name == "mine"


def test_a_copy_of_all_shards(tmp_path: Path, catalogue: Catalogue) -> None:
    shards = write_split(tmp_path)
    steps: list[int] = []
    candidate = candidate_of(shards[1])
    model = install(candidate, catalogue, "mine", lambda done, total: steps.append(total - done)).model
    assert [file.name for file in model.files] == [f"mine-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for file, shard in zip(model.files, shards, strict=True):
        assert file.read_bytes() == shard.read_bytes()
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 0
    assert candidate_of(model.path).files == model.files


def test_a_linked_model_can_be_copied_later(tiny_model: Tiny, catalogue: Catalogue) -> None:
    """As before the program that holds it is removed."""
    path = tiny_model()
    install(candidate_of(path), catalogue, "mine")
    outcome = install(candidate_of(path), catalogue, None, copy_silently)
    assert not outcome.was_there
    (model,) = catalogue.models()
    assert (model.name, model.origin, model.path) == ("mine", Origin.COPIED, models_folder() / "mine.gguf")


def test_a_copy_that_is_stopped_leaves_nothing(
    tmp_path: Path, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.copying._CHUNK", 10_000)
    shards = write_split(tmp_path)

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            assert len(os.listdir(models_folder())) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install(candidate_of(shards[0]), catalogue, None, stop)
    assert os.listdir(models_folder()) == []
    assert catalogue.models() == []


def test_a_file_that_shrinks_while_it_is_copied(
    tiny_model: Tiny, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.copying._CHUNK", 10_000)
    path = tiny_model()
    with pytest.raises(CopyError, match="changed while it was copied"):
        install(candidate_of(path), catalogue, None, lambda done, total: os.truncate(path, 20_000))
    assert os.listdir(models_folder()) == []


def test_a_copy_replaces_no_file(tiny_model: Tiny, catalogue: Catalogue) -> None:
    """Not even one that is no model, and so has no name in the catalogue."""
    models_folder().mkdir(parents=True)
    (models_folder() / "mine.gguf").mkdir()
    with pytest.raises(CopyError, match=r"already a file .*mine\.gguf'"):
        install(candidate_of(tiny_model()), catalogue, "mine", copy_silently)
    assert os.listdir(models_folder()) == ["mine.gguf"]


def test_a_full_disk_is_seen_before(tmp_path: Path) -> None:
    from models.copying import copy_model

    size = 10 * 2**40
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize > size:
        pytest.skip("the disk has 10 TiB free")
    huge = tmp_path / "huge.gguf"
    huge.touch()
    os.truncate(huge, size)
    with pytest.raises(CopyError, match=r"needs 10\.0 TiB and .* free"):
        copy_model([huge], "huge", copy_silently)
    assert os.listdir(models_folder()) == []
