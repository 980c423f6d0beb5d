"""The text of a message: sections of Markdown that grow, or of plain text."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from app.chat.sections import Piece, SectionWriter, plain_sections
from app.chat.widgets.section_views import MarkdownSection, PlainSection
from engine.printable import printable


class MarkdownBody(Vertical):
    """Markdown, whole or while it is written. is_whole: nothing follows, for now."""

    DEFAULT_CSS = """
    MarkdownBody { width: 1fr; height: auto; }
    """

    def __init__(self, text: str = "", *, is_whole: bool = False) -> None:
        super().__init__(classes="body")
        self._writer = SectionWriter()
        self._carriage = ""
        self._last: MarkdownSection | None = None
        pieces = self._pieces(text)
        self._first = self._new_sections([*pieces, *self._finished()] if is_whole else pieces)

    def compose(self) -> ComposeResult:
        """The sections of what there is at first."""
        yield from self._first

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
        while pieces and not pieces[0].begins:
            assert self._last is not None
            await self._last.append(pieces.pop(0).text)
        if pieces:
            await self.mount_all(self._new_sections(pieces))

    def _new_sections(self, pieces: list[Piece]) -> list[MarkdownSection]:
        sections: list[MarkdownSection] = []
        for piece in pieces:
            if not piece.begins:
                sections[-1].text += piece.text
                continue
            if piece.cuts and self._last is not None:
                self._last.cut()
            self._last = MarkdownSection(piece.text, is_built=len(pieces) == 1)
            sections.append(self._last)
        return sections


class PlainBody(Vertical):
    """A text as it was typed or pasted."""

    DEFAULT_CSS = """
    PlainBody { width: 1fr; height: auto; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(classes="body")
        self._text = printable(text.replace("\r\n", "\n"))

    def compose(self) -> ComposeResult:
        """All of it, in sections."""
        sections = list(plain_sections(self._text))
        for section in sections:
            yield PlainSection(section, is_built=len(sections) == 1)
