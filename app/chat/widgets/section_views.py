"""Sections of a message's text: Markdown, which can grow at its end, and plain text; and groups of them.

A text of megabytes has hundreds of sections. In groups, most of which are empty, a layout has few widgets to place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.content import Content
from textual.geometry import NULL_SIZE, Size
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownBlock

from app.chat.widgets.column import LaidOutByWidth
from app.chat.widgets.lazy import Lazy, wrapped_lines
from app.chat.wording.markdown_text import PARSER

GROUP = 12
"""Sections in a group."""


@dataclass
class Source:
    """What a section shows, kept while it has no widget. The text is printable already.

    is_cut: its last block goes on in the next section. expected: its size when it was last seen.
    """

    text: str
    is_cut: bool = False
    expected: Size = NULL_SIZE


class Section(Lazy):
    """A part of a text."""

    def __init__(self, source: Source, *, is_built: bool = False) -> None:
        super().__init__(classes="section", is_built=is_built)
        self.source = source
        self.expected = source.expected

    async def append(self, text: str) -> None:
        """Go on at the end."""
        raise NotImplementedError

    def cut(self) -> None:
        """The last block goes on in the next section, which follows without a blank line."""
        raise NotImplementedError


class _Text(LaidOutByWidth, Markdown):
    """Textual's Markdown."""


class MarkdownSection(Section):
    """A section of Markdown."""

    DEFAULT_CSS = """
    MarkdownSection {
        Markdown { margin: 0; padding: 0; }
        MarkdownHeader { margin: 0 0 1 0; }
        MarkdownBlockQuote { margin: 0 0 1 0; }
        MarkdownFence { margin: 0 0 1 0; overflow: hidden hidden; }
        MarkdownFence > Label { width: 1fr; padding: 0 1; }
    }
    """

    def __init__(self, source: Source, *, is_built: bool = False) -> None:
        super().__init__(source, is_built=is_built)
        self._markdown = _Text()

    def estimate(self, width: int) -> int:
        """As many lines as the source has."""
        return wrapped_lines(self.source.text.rstrip("\n"), width) + (not self.source.is_cut)

    def parts(self) -> Iterable[Widget]:
        """Textual's Markdown, with the app's own parser."""
        self._markdown = _Text(parser_factory=lambda: PARSER, open_links=False)
        yield self._markdown

    async def append(self, text: str) -> None:
        """Go on at the end."""
        self.source.text += text
        if self.is_built:
            await self._markdown.append(text)
        else:
            self.forget_height()

    def cut(self) -> None:
        """Leave no blank line below the last block."""
        self.source.is_cut = True
        if self.is_built and self.is_attached:
            self._join_next()

    async def fill(self) -> None:
        """Make the blocks, by appending: after a text that it is made with, Textual 8.2 would read on at the line that
        follows, also inside a fence.
        """
        if self._markdown.is_attached:  # it may have been removed since
            await self._markdown.append(self.source.text)
            if self.source.is_cut:
                self._join_next()

    def _join_next(self) -> None:
        for block in self._markdown.query_children(MarkdownBlock)[-1:]:
            block.styles.margin = (0, 0, 0, 0)


class PlainSection(Section):
    """A section of plain text."""

    def estimate(self, width: int) -> int:
        """Exact if all characters are narrow and words do not break otherwise."""
        return wrapped_lines(self.source.text, width)

    def parts(self) -> Iterable[Widget]:
        """The text, and nothing in it is markup."""
        yield Static(Content(self.source.text))


class SectionGroup(Lazy):
    """Some sections, one below the other."""

    HOLDS_LAZY = True

    def __init__(self, sources: list[Source], kind: type[Section], *, is_built: bool = False) -> None:
        """is_built: with the sections, if they are few."""
        super().__init__(is_built=is_built)
        self._sources = sources
        self._kind = kind
        self._sections: list[Section] = []

    @property
    def is_full(self) -> bool:
        """Whether the next section belongs to another group."""
        return len(self._sources) >= GROUP

    def estimate(self, width: int) -> int:
        """All of them."""
        sections = [self._kind(source) for source in self._sources]
        return sum(section.expected_height(width) for section in sections)

    def parts(self) -> Iterable[Widget]:
        """The sections."""
        self._sections = [self._kind(source, is_built=len(self._sources) == 1) for source in self._sources]
        return self._sections

    async def append(self, text: str) -> None:
        """Go on with the last section."""
        if self.is_built:
            await self._last.append(text)
        else:
            self._sources[-1].text += text
            self.forget_height()

    async def add(self, source: Source, *, is_built: bool) -> None:
        """Another section at the end. is_built: with its widgets, if the one before has them, being near the window."""
        self._sources.append(source)
        if self.is_built:
            self._sections.append(self._kind(source, is_built=is_built and self._last.is_built))
            await self.mount(self._last)
        else:
            self.forget_height()

    def cut(self) -> None:
        """The last section goes on in the next one."""
        if self.is_built:
            self._last.cut()
        else:
            self._sources[-1].is_cut = True

    async def drop(self) -> None:
        """Keep the sizes of the sections too."""
        for section in self._sections:
            section.source.expected = section.content_size
        await super().drop()

    @property
    def _last(self) -> Section:
        return self._sections[-1]
