"""A long text in sections of a few kilobytes, each of which can be shown without the others.

A Markdown section ends where a block of the document ends. Only a block that is itself very long is cut: a fence, a
table or a list goes on as one in the next section, and looks the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from markdown_it.token import Token

from app.chat.markdown_text import BLOCKS

ENOUGH = 1_000
"""Characters after which a section ends with its block."""

TOO_LONG = 3_000
"""Characters after which the block itself is cut."""

PLAIN_LINES = 40
"""Lines in a section of plain text …"""

PLAIN_SECTIONS = 500
"""… unless there would be more sections than this."""

_UNDECIDED = re.compile(r"[^\S\n]*(?:[-*+]|\d{1,9}[.)]?|[`~]+)?")
"""A beginning of a line that may yet become a list item, or the end of a fence."""


class Piece(NamedTuple):
    """Text for the end of a section. begins: of a new one. cuts: the one before goes on in it."""

    text: str
    begins: bool
    cuts: bool = False


class SectionWriter:
    """Cuts Markdown into sections while it is written, at any chunk borders.

    At the few places where a section may end, the first characters of a line are held back until they are told apart.
    """

    def __init__(self) -> None:
        self._section = ""
        self._held = ""

    def write(self, text: str) -> list[Piece]:
        """What the text adds, to the section that is being written and to new ones."""
        text = self._held + text
        self._held = ""
        pieces: list[Piece] = []
        start = 0
        while start < len(text):
            end = text.find("\n", start) + 1 or len(text)
            line = text[start:end]
            is_at_start = not self._section or self._section[-1] == "\n"
            if is_at_start and len(self._section) >= ENOUGH:
                if not line.endswith("\n") and _UNDECIDED.fullmatch(line):
                    self._held = line
                    break
                self._cut_before(line, pieces)
            else:
                end = start + self._fitting(line, pieces)
            self._add(text[start:end], pieces)
            start = end
        return pieces

    def finish(self) -> list[Piece]:
        """What is held back, now that nothing follows."""
        pieces: list[Piece] = []
        held, self._held = self._held, ""
        if held:
            self._add(held, pieces)
        return pieces

    def _add(self, text: str, pieces: list[Piece]) -> None:
        if not self._section:
            pieces.append(Piece(text, begins=True))
        elif pieces:
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text + text)
        else:
            pieces.append(Piece(text, begins=False))
        self._section += text

    def _begin(self, text: str, pieces: list[Piece]) -> None:
        """A new section, which goes on with the block of the last one if there is a text to begin it with."""
        pieces.append(Piece(text, begins=True, cuts=True))
        self._section = text

    def _cut_before(self, line: str, pieces: list[Piece]) -> None:
        """End the section if this line may begin another."""
        is_long = len(self._section) >= TOO_LONG
        is_after_blank = self._section.endswith("\n\n") or self._section.rsplit("\n", 2)[-2].isspace()
        if not line.strip() or not (is_long or is_after_blank or line.startswith("#")):
            return
        tokens = BLOCKS.parse(self._section + line)
        number = self._section.count("\n")
        top = next(token for token in reversed(tokens) if token.level == 0 and token.map)
        assert top.map is not None
        if top.map[0] == number:
            self._section = ""
        elif is_long:
            opening = self._continued(tokens, top, number, line)
            if opening is not None:
                self._begin(opening, pieces)

    def _continued(self, tokens: list[Token], top: Token, number: int, line: str) -> str | None:
        """What a section begins with that goes on with the last block of this one; None if it cannot be cut here."""
        if top.type == "fence":
            is_its_end = line.strip().startswith(top.markup) and not line.strip().strip(top.markup[0])
            return None if is_its_end else _opening(top)
        if top.type in ("table_open", "bullet_list_open", "ordered_list_open"):
            part = "tr_open" if top.type == "table_open" else "list_item_open"
            is_between = any(token.type == part and token.map and token.map[0] == number for token in tokens)
            if not is_between or line[0].isspace():
                return None
            assert top.map is not None
            head = self._section.splitlines(keepends=True)[top.map[0] : top.map[0] + 2]
            return "".join(head) if top.type == "table_open" else ""
        return "" if top.type in ("paragraph_open", "blockquote_open", "code_block") else None

    def _fitting(self, line: str, pieces: list[Piece]) -> int:
        """How many characters of a line fit here: all, but for a line that is far too long, which goes on elsewhere."""
        begun = len(self._section) - self._section.rfind("\n") - 1
        room = TOO_LONG - begun
        if len(line) <= room:
            return len(line)
        if room > 0:
            return (line.rfind(" ", 0, room) + 1 or room) if begun == 0 else room
        top = next((token for token in reversed(BLOCKS.parse(self._section)) if token.level == 0 and token.map), None)
        self._begin(_opening(top) if top and top.type == "fence" else "", pieces)
        return min(len(line), TOO_LONG)


def _opening(fence: Token) -> str:
    return f"{fence.markup}{fence.info}\n"


def plain_sections(text: str) -> list[str]:
    """A text that is no Markdown, in sections of whole lines."""
    lines = text.split("\n")
    size = max(PLAIN_LINES, len(lines) // PLAIN_SECTIONS)
    return ["\n".join(lines[start : start + size]) for start in range(0, len(lines), size)]
