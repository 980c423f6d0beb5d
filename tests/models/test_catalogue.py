"""The catalogue of installed models, with several processes, kills, damage and files that the user put there."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import CatalogueError
from models.folders import models_folder
from tests.app.command import ROOT

STARTER = "SmolLM2-135M-Instruct.Q4_1"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, which is made by whoever needs it."""
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def names() -> list[str]:
    return [model.name for model in Catalogue().models() if model.origin is not Origin.STARTER]


def link(name: str, file: str | Path) -> InstalledModel:
    return Catalogue().add(name, [Path(file)], Origin.LINKED, str(file))


def drop(*files: str) -> None:
    """Files put into the folder of models."""
    models_folder().mkdir(parents=True, exist_ok=True)
    for file in files:
        (models_folder() / file).touch()


def python(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Python code in a process of its own, with the catalogue imported."""
    code = f"import sys\nfrom pathlib import Path\nfrom models.catalogue import Catalogue, Origin\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def finish(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.communicate()
        assert process.returncode == 0


def test_what_was_added_is_read_back(data: Path) -> None:
    before = datetime.now(UTC)
    files = [Path("/models/big-00001-of-00002.gguf"), Path("/models/big-00002-of-00002.gguf")]
    added = Catalogue().add("Big-Q4_K_M", files, Origin.PULLED, "user/Big-GGUF:Q4_K_M")
    assert added == Catalogue().find("Big-Q4_K_M")
    assert (added.files, added.path, added.origin) == (tuple(files), files[0], Origin.PULLED)
    assert added.added is not None
    assert before <= added.added <= datetime.now(UTC)
    assert added.last_used is None
    assert added.n_bytes == 0  # the files are not there


def test_a_path_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that are not UTF-8, in the name of a file and in that of the folder of the catalogue itself."""
    monkeypatch.setenv("OCTAVO_DATA_DIR", os.fsdecode(os.fsencode(tmp_path) + b"/d\xe9"))
    file = Path(os.fsdecode(b"/caf\xe9.gguf"))
    added = Catalogue().add("café", [file], Origin.LINKED, str(file))
    assert (added.path, added.source) == (file, "/caf<U+DCE9>.gguf")
    assert Catalogue().find("CAFÉ") == added
    Catalogue().note_use(file)
    (model,) = [model for model in Catalogue().models() if model.origin is Origin.LINKED]
    assert model.path == file
    assert model.last_used is not None
    Catalogue().remove("café")
    assert link("café", file).last_used is None


def test_nothing_is_made_by_reading(data: Path) -> None:
    assert [model.name for model in Catalogue().models()] == [STARTER]
    assert Catalogue().find("anything") is None
    assert not data.exists()


def test_relative_paths_are_kept_as_absolute_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert link("here", "model.gguf").path == tmp_path / "model.gguf"


@pytest.mark.parametrize(
    "name", ["Qwen3-4B", "qwen3-4b", "QWEN3-4B.gguf", "user/Qwen3-4B-GGUF:Q4_K_M", "User/qwen3-4b-gguf:q4_k_m"]
)
def test_found_in_any_case_by_name_and_source(name: str) -> None:
    Catalogue().add("Qwen3-4B", [Path("/a.gguf")], Origin.PULLED, "user/Qwen3-4B-GGUF:Q4_K_M")
    model = Catalogue().find(name)
    assert model is not None
    assert model.name == "Qwen3-4B"


def test_a_name_that_is_taken_gets_a_number() -> None:
    assert link("model", "/a.gguf").name == "model"
    assert link("Model", "/b.gguf").name == "Model-2"
    assert link("model", "/c.gguf").name == "model-3"
    assert link(STARTER.lower(), "/d.gguf").name == f"{STARTER.lower()}-2"
    drop("dropped.gguf")
    assert link("DROPPED", "/e.gguf").name == "DROPPED-2"
    assert names() == ["dropped", "DROPPED-2", "model", "Model-2", "model-3", f"{STARTER.lower()}-2"]


def test_the_same_file_again_keeps_its_name() -> None:
    link("model", "/a.gguf")
    again = Catalogue().add("other", [Path("/a.gguf")], Origin.COPIED, "/elsewhere.gguf")
    assert (again.name, again.origin) == ("model", Origin.COPIED)
    assert names() == ["model"]


def test_a_newer_revision_of_the_same_source_keeps_its_name() -> None:
    old = Catalogue().add("m-Q8_0", [Path("/snapshots/1/m.gguf")], Origin.PULLED, "user/m:Q8_0")
    new = Catalogue().add("m-Q8_0", [Path("/snapshots/2/m.gguf")], Origin.PULLED, "user/m:Q8_0")
    assert new.name == old.name
    assert [model.path for model in Catalogue().models() if model.name == "m-Q8_0"] == [new.path]


def test_removed_in_any_case_and_forgotten() -> None:
    link("Model", "/a.gguf")
    Catalogue().note_use(Path("/a.gguf"))
    Catalogue().remove("mODEL")
    assert names() == []
    assert link("Model", "/a.gguf") == Catalogue().find("Model")  # and it was never used
    Catalogue().remove("nothing of that name")


def test_use_is_noted_for_every_kind_of_model(starter_path: Path) -> None:
    link("linked", "/a.gguf")
    drop("dropped.gguf")
    before = datetime.now(UTC)
    for path in (Path("/a.gguf"), models_folder() / "dropped.gguf", starter_path):
        Catalogue().note_use(path)
    assert len(Catalogue().models()) == 3
    for model in Catalogue().models():
        assert model.last_used is not None
        assert timedelta(0) <= model.last_used - before < timedelta(minutes=1)


def test_files_in_the_folder_are_models() -> None:
    drop("a.gguf", "b.Q4_0.gguf", "notes.txt", ".hidden.gguf", "._a.gguf", "a.gguf.part", "x-00001-of-00000.gguf")
    drop("split-00001-of-00003.gguf", "split-00002-of-00003.gguf", "split-00003-of-00003.gguf")
    (models_folder() / "folder.gguf").mkdir()
    assert names() == ["a", "b.Q4_0", "split", "x-00001-of-00000"]
    split = Catalogue().find("split")
    assert split is not None
    assert [file.name[6:11] for file in split.files] == ["00001", "00002", "00003"]


def test_a_file_in_the_folder_with_an_entry_is_one_model() -> None:
    drop("made.gguf")
    Catalogue().add("made", [models_folder() / "made.gguf"], Origin.MADE, "somewhere")
    assert names() == ["made"]


def test_a_file_in_the_folder_gives_way_to_an_entry_of_its_name() -> None:
    link("model", "/a.gguf")
    drop("Model.gguf", "MODEL.gguf")
    assert names() == ["model", "MODEL-2", "Model-3"]
    found = Catalogue().find("model")
    assert found is not None
    assert found.path == Path("/a.gguf")


def test_eight_processes_add_at_once() -> None:
    code = (
        "for i in range(10):\n"
        "    Catalogue().add('model', [Path(f'/{sys.argv[1]}-{i}.gguf')], Origin.LINKED, 'x')\n"
        "    Catalogue().note_use(Path('/shared.gguf'))\n"
    )
    finish([python(code, str(number)) for number in range(8)])
    assert sorted(names()) == sorted(["model", *(f"model-{n}" for n in range(2, 81))])
    paths = {str(model.path) for model in Catalogue().models() if model.origin is Origin.LINKED}
    assert paths == {f"/{process}-{i}.gguf" for process in range(8) for i in range(10)}


def test_a_process_killed_inside_a_transaction_leaves_it_whole(data: Path) -> None:
    link("before", "/before.gguf")
    code = (
        "catalogue = Catalogue()\n"
        "with catalogue._writing() as database:\n"
        "    database.execute('PRAGMA cache_size = 1')\n"  # so that pages reach the file before the commit
        "    for i in range(2000):\n"
        "        database.execute('INSERT INTO uses VALUES (?, ?)', (f'/{i}' * 50, 'now'))\n"
        "    database.execute('DELETE FROM models')\n"
        "    print('inside', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = python(code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"inside\n"
    assert (data / "models.db-journal").stat().st_size > 0
    process.kill()
    process.communicate()
    assert names() == ["before"]
    link("after", "/after.gguf")
    assert names() == ["after", "before"]


def test_a_process_killed_before_it_wrote_anything(data: Path) -> None:
    data.mkdir()
    (data / "models.db").touch()
    assert names() == []
    link("model", "/a.gguf")
    assert names() == ["model"]


def test_a_reader_is_not_disturbed_by_a_writer_that_takes_its_time(data: Path) -> None:
    link("model", "/a.gguf")
    with sqlite3.connect(data / "models.db", isolation_level=None) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("DELETE FROM models")
        assert names() == ["model"]
        database.execute("ROLLBACK")


def damage_text(path: Path) -> None:
    path.write_bytes(b"this is no database, but long enough to be read as one" * 100)


def damage_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:8192] = os.urandom(4096)
    path.write_bytes(content)


def damage_row(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET files = '[]'")


def damage_origin(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE models SET origin = 'stolen'")


def damage_time(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO uses VALUES ('/a.gguf', 'yesterday')")


def damage_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE models RENAME COLUMN files TO paths")


DAMAGES = [damage_text, damage_middle, damage_row, damage_origin, damage_time, damage_tables]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_told_in_a_sentence_and_left_alone(damage: object, data: Path) -> None:
    link("model", "/a.gguf")
    assert callable(damage)
    damage(data / "models.db")
    before = (data / "models.db").read_bytes()
    for use in (Catalogue().models, lambda: link("other", "/other.gguf")):
        with pytest.raises(CatalogueError, match=r"models\.db', cannot be used .*move the file away\.$") as raised:
            use()
        assert "\n" not in str(raised.value)
    assert (data / "models.db").read_bytes() == before


def test_a_folder_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "file" / "data"))
    with pytest.raises(CatalogueError, match=r"cannot be made .*: set OCTAVO_DATA_DIR"):
        link("model", "/a.gguf")
    assert names() == []


def test_a_catalogue_that_may_only_be_read(data: Path) -> None:
    link("model", "/a.gguf")
    data.chmod(0o555)
    (data / "models.db").chmod(0o444)
    if os.access(data, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert names() == ["model"]
    with pytest.raises(CatalogueError, match="check that you may write there"):
        Catalogue().note_use(Path("/a.gguf"))
    data.chmod(0o755)
