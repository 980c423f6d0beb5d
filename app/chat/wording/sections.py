"""A long text in sections of a few kilobytes, each of which can be shown without the others.

A Markdown section ends where a block of the document ends. Only a block that is itself very long is cut: a fence, a
table or a list goes on as one in the next section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it.token import Token

from app.chat.wording.markdown_text import BLOCKS

ENOUGH = 600
"""Characters after which a section ends with its block."""

TOO_LONG = 2_000
"""Characters after which the block itself is cut, between two of its lines."""

LONG_LINE = 8_000
"""Characters after which a line is cut, between two words; after twice as many, anywhere."""

PLAIN = 4_000
"""Characters of a section of plain text, unless there would be more than PLAIN_SECTIONS."""

PLAIN_SECTIONS = 500

_UNDECIDED = re.compile(r"[^\S\n]*(?:[-*+]|\d{1,9}[.)]?|[`~]+)?")
"""A beginning of a line that may yet become a list item, or the end of a fence."""

_INSIDE = re.compile(r"\s|[-*+]\s|\d{1,9}[.)]\s")
"""A beginning of a line that may go on with a list."""


class Piece(NamedTuple):
    """Text for the end of a section. begins: of a new one. cuts: the one before goes on in it."""

    text: str
    begins: bool
    cuts: bool = False


class SectionWriter:
    """Cuts Markdown into sections while it is written, whatever pieces it comes in.

    Where a section may end, the first characters of a line are held back until it is clear what they begin. A section
    is parsed only where it is likely to end; `_fence`: the marks of the fence that it was last seen to be in, if any.
    """

    def __init__(self) -> None:
        self._section = ""
        self._held = ""
        self._next: Piece | None = Piece("", begins=True)
        self._fence = ""

    def write(self, text: str) -> list[Piece]:
        """What the text adds, to the section that is being written and to new ones."""
        text, self._held = self._held + text, ""
        pieces: list[Piece] = []
        start = 0
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            line = text[start:end]
            if len(self._section) >= ENOUGH and self._section.endswith("\n"):
                if not line.endswith("\n") and _UNDECIDED.fullmatch(line):
                    self._held = line
                    break
                self._end_before(line)
            taken, is_full = self._fitting(line)
            self._add(line[:taken], pieces)
            if is_full:
                self._begin(self._opening_of_fence(), cuts=True)
            start += taken
        return pieces

    def finish(self) -> list[Piece]:
        """What is held back, now that nothing follows."""
        pieces: list[Piece] = []
        if self._held:
            self._add(self._held, pieces)
        self._held = ""
        return pieces

    def _add(self, text: str, pieces: list[Piece]) -> None:
        if self._next is not None:
            pieces.append(self._next._replace(text=self._next.text + text))
            self._next = None
        elif pieces:
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + text)
        else:
            pieces.append(Piece(text, begins=False))
        self._section += text

    def _begin(self, opening: str, *, cuts: bool) -> None:
        """The next character begins a section, after the opening of a block that goes on."""
        self._section = opening
        self._fence = ""
        self._next = Piece(opening, begins=True, cuts=cuts)

    def _end_before(self, line: str) -> None:
        """End the section if this line may begin another."""
        is_long = len(self._section) >= TOO_LONG
        if not line.strip() or not (is_long or self._is_likely(line)):
            return
        tokens = BLOCKS.parse(self._section + line)
        number = self._section.count("\n")
        top = _last_block(tokens)
        if top is None or top.map is None:
            return
        if top.map[0] == number:
            self._begin("", cuts=False)
        elif is_long and (opening := self._opening(tokens, top, number, line)) is not None:
            self._begin(opening, cuts=True)
        elif top.type == "fence":
            self._fence = "" if _closes(line, top.markup) else top.markup

    def _is_likely(self, line: str) -> bool:
        if self._fence:
            if _closes(line, self._fence):
                self._fence = ""
            return False
        is_after_blank = not self._section.rsplit("\n", 2)[-2].strip()
        return line.startswith("#") or (is_after_blank and not _INSIDE.match(line))

    def _opening(self, tokens: list[Token], top: Token, number: int, line: str) -> str | None:
        """What the next section begins with so that it goes on with the last block; None if it cannot be cut here."""
        if top.type == "fence":
            return None if _closes(line, top.markup) else _fence_line(top)
        if line[0].isspace() or top.map is None:
            return None
        rows = [token.type for token in tokens if token.map and token.map[0] == number]
        if top.type == "table_open":
            head = self._section.splitlines(keepends=True)[top.map[0] : top.map[0] + 2]
            return "".join(head) if "tr_open" in rows else None
        if top.type in ("bullet_list_open", "ordered_list_open"):
            return "" if "list_item_open" in rows else None
        return "" if top.type in ("paragraph_open", "blockquote_open") else None

    def _fitting(self, line: str) -> tuple[int, bool]:
        """How many characters of a line, or of the next part of one, fit here; and whether the next section follows."""
        room = LONG_LINE - (len(self._section) - self._section.rfind("\n") - 1)
        if len(line) <= room:
            return len(line), False
        space = line.find(" ", max(room, 0), room + LONG_LINE) + 1
        if not space and len(line) < room + LONG_LINE:
            return len(line), False
        return space or room + LONG_LINE, True

    def _opening_of_fence(self) -> str:
        top = _last_block(BLOCKS.parse(self._section))
        return _fence_line(top) if top is not None and top.type == "fence" else ""


def _last_block(tokens: list[Token]) -> Token | None:
    return next((token for token in reversed(tokens) if token.level == 0 and token.map), None)


def _closes(line: str, markup: str) -> bool:
    line = line.strip()
    return line.startswith(markup) and not line.strip(markup[0])


def _fence_line(fence: Token) -> str:
    return f"{fence.markup}{fence.info}\n"


def markdown_sections(text: str) -> list[Piece]:
    """The sections of a whole text."""
    writer = SectionWriter()
    pieces = writer.write(text)
    for piece in writer.finish():
        pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + piece.text)
    return pieces


def plain_sections(text: str) -> Iterator[str]:
    """The sections of a text that is no Markdown: whole lines, unless they are very long."""
    size = max(PLAIN, len(text) // PLAIN_SECTIONS)
    start = 0
    while start < len(text):
        end = text.find("\n", start + size, start + 2 * size) + 1 or start + 2 * size
        yield text[start:end].removesuffix("\n")
        start = end
