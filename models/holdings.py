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


def files_under(folder: Path, unreadable: list[Path]) -> Iterator[Path]:
    """All files under `folder`, which need not exist, in the order of their paths; links are followed.

    unreadable: gets the folders that cannot be listed.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            unreadable.append(Path(error.filename))

    seen: set[tuple[int, int]] = set()
    for place, folders, files in os.walk(folder, onerror=note, followlinks=True):
        status = os.stat(place)
        identity = (status.st_dev, status.st_ino)
        if identity in seen:  # a link to a folder that is above it
            folders.clear()
            continue
        seen.add(identity)
        folders.sort()
        yield from (Path(place, file) for file in sorted(files))


def models_under(folder: Path, unreadable: list[Path]) -> Iterator[Path]:
    """The .gguf files among them that can be models: whole ones and first shards, and no image encoders."""
    for file in files_under(folder, unreadable):
        name = file.name.lower()
        if name.endswith(".gguf") and "mmproj" not in name and shard_names(file.name)[0] == file.name:
            yield file
