"""Long pasted texts, each shown as a placeholder until it is sent: [Pasted text #1: 1.0 MiB, 20,000 lines]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from engine.units import format_bytes

_LONG_LINES = 10
_LONG_CHARACTERS = 2_000
"""A text of more lines or characters is shown as a placeholder."""

_PLACEHOLDER = re.compile(r"\[Pasted text #\d+: [^\]\n]*\]")


class Span(NamedTuple):
    """A part of a text: characters `start` to `end`, without the last."""

    start: int
    end: int


def is_long(text: str) -> bool:
    """Whether a text would fill the composer."""
    return len(text) > _LONG_CHARACTERS or text.count("\n") >= _LONG_LINES


def unix_lines(text: str) -> str:
    """The text with every line ended by a newline alone; terminals paste carriage returns."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Pastes:
    """The texts behind the placeholders of one prompt. They stay when one is deleted: undo may bring it back."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """A placeholder for a text; the same one for the same text."""
        for placeholder, known in self._texts.items():
            if known == text:
                return placeholder
        n_lines = text.count("\n") + (not text.endswith("\n"))
        size = format_bytes(len(text.encode(errors="surrogatepass")))
        lines = "1 line" if n_lines == 1 else f"{n_lines:,} lines"
        placeholder = f"[Pasted text #{len(self._texts) + 1}: {size}, {lines}]"
        self._texts[placeholder] = text
        return placeholder

    def spans(self, line: str) -> Iterator[Span]:
        """Where placeholders are; one that the user has typed without a text behind it is none."""
        for match in _PLACEHOLDER.finditer(line):
            if match[0] in self._texts:
                yield Span(*match.span())

    def expand(self, text: str) -> str:
        """The text with what the placeholders stand for. Placeholders inside a pasted text are text."""
        return _PLACEHOLDER.sub(lambda match: self._texts.get(match[0], match[0]), text)
