"""The text of a message: sections of Markdown that grow, or of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from app.chat.widgets.column import Column
from app.chat.widgets.section_views import GROUP, MarkdownSection, PlainSection, Section, SectionGroup, Source
from app.chat.wording.sections import Piece, SectionWriter, plain_sections
from engine.printable import printable


class MarkdownBody(Column):
    """Markdown, whole or while it is written. is_whole: nothing follows, for now."""

    def __init__(self, text: str = "", *, is_whole: bool = False) -> None:
        super().__init__(classes="body")
        self._writer = SectionWriter()
        self._carriage = ""
        pieces = self._pieces(text)
        sources: list[Source] = []
        for piece in [*pieces, *self._finished()] if is_whole else pieces:
            if piece.cuts:
                sources[-1].is_cut = True
            if piece.begins:
                sources.append(Source(piece.text))
            else:
                sources[-1].text += piece.text
        self._groups = _groups(sources, MarkdownSection)

    def compose(self) -> ComposeResult:
        """What there is at first."""
        yield from self._groups

    async def write(self, text: str) -> None:
        """Add a piece at the end, whatever it ends with. Control characters are shown, never sent to the terminal."""
        await self._add(self._pieces(text))

    async def finish(self) -> None:
        """Nothing follows, for now: show what was held back."""
        await self._add(self._finished())

    def _pieces(self, text: str) -> list[Piece]:
        text = self._carriage + text
        self._carriage = "\r" if text.endswith("\r") else ""
        return self._writer.write(printable(text.removesuffix(self._carriage).replace("\r\n", "\n")))

    def _finished(self) -> list[Piece]:
        carriage, self._carriage = self._carriage, ""
        return [*self._writer.write(printable(carriage)), *self._writer.finish()]

    async def _add(self, pieces: list[Piece]) -> None:
        is_built = len(pieces) <= 2
        for piece in pieces:
            if not piece.begins:
                await self._groups[-1].append(piece.text)
                continue
            if piece.cuts:
                self._groups[-1].cut()
            if not self._groups or self._groups[-1].is_full:
                self._groups.append(SectionGroup([Source(piece.text)], MarkdownSection, is_built=is_built))
                await self.mount(self._groups[-1])
            else:
                await self._groups[-1].add(Source(piece.text), is_built=is_built)


class PlainBody(Column):
    """A text as it was typed or pasted."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="body")
        self._text = printable(text.replace("\r\n", "\n"))

    def compose(self) -> ComposeResult:
        """All of it, in sections."""
        yield from _groups([Source(text) for text in plain_sections(self._text)], PlainSection)


def _groups(sources: Sequence[Source], kind: type[Section]) -> list[SectionGroup]:
    """Sections in groups; a few are made at once, many only where they are looked at."""
    starts = range(0, len(sources), GROUP)
    return [SectionGroup(list(sources[start : start + GROUP]), kind, is_built=len(starts) == 1) for start in starts]
