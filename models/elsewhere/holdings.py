"""What a look into another program's folders yields: the files it keeps, and how it calls them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from models.catalogue import Origin
from models.shards import shard_names


class Holding(NamedTuple):
    """A file that another program keeps as a model; nothing of it has been checked.

    program: for people. label: what the model is called there. path: of its first file, links not resolved. name: what
    it could be called here. origin: LINKED, or PULLED in the hub's cache. source: how it would be pulled; None is the
    path.
    """

    program: str
    label: str
    path: Path
    name: str
    origin: Origin = Origin.LINKED
    source: str | None = None


def entries(folder: Path, unreadable: list[Path]) -> list[Path]:
    """What is in `folder`, by name; nothing if there is no such folder. unreadable: gets it if it cannot be listed."""
    try:
        return sorted(folder / name for name in os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        unreadable.append(folder)
        return []


def files_under(folder: Path, unreadable: list[Path]) -> Iterator[Path]:
    """All files under `folder`, links to folders included. unreadable: as for `entries`."""
    seen: set[str] = set()
    pending = [folder]
    while pending:
        place = pending.pop()
        real = os.path.realpath(place)
        if real in seen:  # by a link to a folder above it
            continue
        seen.add(real)
        inside = entries(place, unreadable)
        folders = {entry for entry in inside if os.path.isdir(entry)}
        yield from (entry for entry in inside if entry not in folders)
        pending.extend(sorted(folders, reverse=True))


def models_under(folder: Path, unreadable: list[Path]) -> Iterator[Path]:
    """The .gguf files among them that can be models: whole ones and first shards, none hidden, no image encoders."""
    for file in files_under(folder, unreadable):
        name = file.name.lower()
        is_first = shard_names(file.name)[0] == file.name
        if name.endswith(".gguf") and is_first and "mmproj" not in name and not name.startswith("."):
            yield file
