"""Text files that appear, or change, as a whole."""

from __future__ import annotations

from models.part_file import PartFile


def write_text(part: PartFile, text: str) -> None:
    """Write all of a text, in UTF-8. Raises OSError."""
    rest = memoryview(text.encode())
    while rest:
        rest = rest[part.stream.write(rest) :]
