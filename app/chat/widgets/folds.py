"""Parts of a message that are folded until the user wants to see them: a thought, and a long text of the user's."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.chat.widgets.column import Column
from app.chat.widgets.markdown_body import MarkdownBody, PlainBody
from app.chat.wording.message_texts import text_size, thought_title
from engine.printable import printable

SHORT_LINES = 30
SHORT_CHARACTERS = 3_000
"""What a text of the user's has at most if it is not folded."""

_FIRST_LINES = 6
_FIRST_CHARACTERS = 600


class Fold(Column):
    """A line that says what is folded, and below it the text itself, while it is unfolded."""

    DEFAULT_CSS = """
    Fold > .fold-title { height: 1; width: 1fr; color: $text-muted; }
    """

    @dataclass
    class Asked(Message):
        """The user wants it unfolded, or folded again."""

        fold: Fold

    def __init__(self, *, classes: str) -> None:
        super().__init__(classes=classes)
        self.is_unfolded = False
        self._title = Static(classes="fold-title")

    def compose(self) -> ComposeResult:
        """Folded."""
        yield self._title

    def ask(self) -> None:
        """Let the transcript toggle it, which keeps it in its place."""
        self.post_message(self.Asked(self))

    async def toggle(self) -> None:
        """Unfold it, or fold it again."""
        self.is_unfolded = not self.is_unfolded
        if self.is_unfolded:
            await self.unfold()
        else:
            await self.fold()

    async def unfold(self) -> None:
        """Show the text."""
        raise NotImplementedError

    async def fold(self) -> None:
        """Take the text away."""
        raise NotImplementedError

    def _show_title(self, title: str) -> None:
        mark = "▼" if self.is_unfolded else "▶"
        self._title.update(Content(f"{mark} {title}"), layout=False)

    async def _on_click(self, event: events.Click) -> None:
        if event.widget is self._title:
            self.ask()


class ThoughtFold(Fold):
    """What a model thought before it answered; it may still go on."""

    DEFAULT_CSS = """
    ThoughtFold { margin: 0 0 1 0; }
    ThoughtFold > MarkdownBody { border-left: vkey $panel; padding: 0 0 0 1; color: $text-muted; }
    """

    def __init__(self, thought: str, seconds: float | None, *, is_open: bool) -> None:
        super().__init__(classes="thought")
        self._thought = thought
        self._seconds = seconds
        self._is_open = is_open
        self._body: MarkdownBody | None = None
        self._n_shown = 0

    def on_mount(self) -> None:
        """Say how long it is."""
        self._show_thought_title()

    async def show(self, thought: str, seconds: float | None, *, is_open: bool) -> None:
        """The thought so far, and for how many seconds it has gone on. is_open: it goes on."""
        self._thought, self._seconds, self._is_open = thought, seconds, is_open
        self._show_thought_title()
        if self._body is not None:
            new, self._n_shown = thought[self._n_shown :], len(thought)
            await self._body.write(new)
            if not is_open:
                await self._body.finish()

    async def unfold(self) -> None:
        """Show what there is; more is added as it comes."""
        self._show_thought_title()
        self._n_shown = len(self._thought)
        self._body = MarkdownBody(self._thought, is_whole=not self._is_open)
        await self.mount(self._body)

    async def fold(self) -> None:
        """Show the title alone, while the thought goes on."""
        self._show_thought_title()
        body, self._body = self._body, None
        if body is not None:
            await body.remove()

    def _show_thought_title(self) -> None:
        self._show_title(thought_title(self._thought, self._seconds, is_open=self._is_open))


class LongText(Fold):
    """A long text of the user's: its first lines, or all of it."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="long-text")
        self._text = text

    def compose(self) -> ComposeResult:
        """The first lines, and how much more there is."""
        yield self._beginning()
        yield self._title

    def on_mount(self) -> None:
        """Say how long it is."""
        self._show_size()

    async def unfold(self) -> None:
        """Show all of it."""
        await self._replace(PlainBody(self._text))

    async def fold(self) -> None:
        """Show its first lines."""
        await self._replace(self._beginning())

    async def _replace(self, widget: Static | PlainBody) -> None:
        self._show_size()
        with self.app.batch_update():
            await self.query_children().exclude(".fold-title").remove()
            await self.mount(widget, before=self._title)

    def _beginning(self) -> Static:
        lines = self._text[:_FIRST_CHARACTERS].split("\n")[:_FIRST_LINES]
        return Static(Content(printable("\n".join(lines).replace("\r\n", "\n")) + " …"))

    def _show_size(self) -> None:
        self._show_title(text_size(self._text))


def is_long(text: str) -> bool:
    """Whether a text of the user's is folded."""
    return len(text) > SHORT_CHARACTERS or text.count("\n") >= SHORT_LINES
