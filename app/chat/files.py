"""Small helpers for files that the user may look at."""

from __future__ import annotations

from pathlib import Path

from engine.printable import one_line
from models.part_file import PartFile


def write_text(part: PartFile, text: str) -> None:
    """Write all of a text, in UTF-8. Raises OSError."""
    rest = memoryview(text.encode())
    while rest:
        rest = rest[part.stream.write(rest) :]


def quoted_path(path: Path) -> str:
    """A path for use inside a sentence: in quotes and whole, however long it is."""
    return f"'{one_line(str(path))}'"
