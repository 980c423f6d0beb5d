"""Sections of a message's text: Markdown, which can grow at its end, and plain text."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownBlock

from app.chat.markdown_text import PARSER
from app.chat.widgets.lazy import Lazy, wrapped_lines


class MarkdownSection(Lazy):
    """A section of Markdown. Its text is printable already. is_cut: its last block goes on in the next section."""

    DEFAULT_CSS = """
    MarkdownSection {
        Markdown { margin: 0; padding: 0; }
        MarkdownHeader { margin: 0 0 1 0; }
        MarkdownBlockQuote { margin: 0 0 1 0; }
        MarkdownFence { margin: 0 0 1 0; overflow: hidden hidden; }
        MarkdownFence > Label { width: 1fr; padding: 0 1; }
    }
    """

    def __init__(self, text: str, *, is_built: bool = False) -> None:
        super().__init__(classes="section", is_built=is_built)
        self.text = text
        self.is_cut = False

    def estimate(self, width: int) -> int:
        """As many lines as the source has."""
        return wrapped_lines(self.text.rstrip("\n"), width) + (not self.is_cut)

    def parts(self) -> Iterable[Widget]:
        """Textual's Markdown, with the app's own parser."""
        yield Markdown(self.text, parser_factory=lambda: PARSER, open_links=False)

    async def append(self, text: str) -> None:
        """Go on at the end."""
        self.text += text
        if self.is_built:
            await self.query_one(Markdown).append(text)
        else:
            self.forget_height()

    def cut(self) -> None:
        """The last block goes on in the next section, which follows without a blank line."""
        self.is_cut = True
        if self.is_built and self.is_attached:
            self._join_next()

    async def build(self) -> None:
        """Make the blocks."""
        await super().build()
        if self.is_cut:
            self._join_next()

    def on_mount(self) -> None:
        """After the blocks of a section that is built from the beginning."""
        if self.is_cut and self.is_built:
            self._join_next()

    def _join_next(self) -> None:
        last = self.query_one(Markdown).query_children(MarkdownBlock).last()
        last.styles.margin = (0, 0, 0, 0)


class PlainSection(Lazy):
    """A section of plain text, which is printable already."""

    def __init__(self, text: str, *, is_built: bool = False) -> None:
        super().__init__(classes="section", is_built=is_built)
        self.text = text

    def estimate(self, width: int) -> int:
        """Exact if all characters are narrow and no line is wrapped."""
        return wrapped_lines(self.text, width)

    def parts(self) -> Iterable[Widget]:
        """The text, and nothing in it is markup."""
        yield Static(Content(self.text))
