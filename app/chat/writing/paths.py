"""Completing the path of a file, as a shell does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_MOST = 5_000
"""Entries of a folder that are looked at, so that a huge one does not make the user wait."""


class PathChoice(NamedTuple):
    """A way to go on. name: of a file or folder. path: all of it, as the user began it; of a folder with a slash."""

    name: str
    path: str

    @property
    def is_folder(self) -> bool:
        """Whether there is more to choose in it."""
        return self.path.endswith("/")


def complete_path(typed: str, folder: Path) -> list[PathChoice]:
    """Files and folders whose path begins with what was typed, folders first.

    folder: what a relative path starts from. Hidden ones are left out unless the name begins with a dot. Upper and
    lower case are the same. A folder that cannot be read has nothing.
    """
    place, slash, beginning = typed.rpartition("/")
    try:
        inside = folder / Path(place + slash).expanduser()
        with os.scandir(inside) as entries:
            found = [_choice(entry, place + slash) for entry, _ in zip(entries, range(_MOST), strict=False)]
    except (OSError, ValueError, RuntimeError):
        return []
    wanted = beginning.lower()
    fitting = [
        choice
        for choice in found
        if choice.name.lower().startswith(wanted) and (wanted or not choice.name.startswith("."))
    ]
    return sorted(fitting, key=lambda choice: (not choice.is_folder, choice.name.lower()))


def _choice(entry: os.DirEntry[str], place: str) -> PathChoice:
    try:
        is_folder = entry.is_dir()
    except OSError:
        is_folder = False
    return PathChoice(entry.name, f"{place}{entry.name}{'/' if is_folder else ''}")
