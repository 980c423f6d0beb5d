"""Markdown that grows: written piece by piece, in several widgets, so that a long text stays quick to draw."""

from __future__ import annotations

from textual.containers import Vertical
from textual.widgets import Markdown

from engine.printable import printable


class MarkdownBody(Vertical):
    """The text of a message."""

    def __init__(self) -> None:
        super().__init__(classes="body")
        self._markdown: Markdown | None = None

    async def write(self, text: str) -> None:
        """Add a piece at the end. Control characters are shown, never sent to the terminal."""
        if not text:
            return
        if self._markdown is None:
            self._markdown = Markdown(open_links=False)
            await self.mount(self._markdown)
            self._stream = Markdown.get_stream(self._markdown)
        await self._stream.write(printable(text))
