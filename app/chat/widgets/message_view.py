"""One message: who wrote it, its thought, its text as Markdown, and what it cost."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Collapsible, Static

from app.chat.conversation import Message, MessageState
from app.chat.thinking import parts
from app.chat.widgets.markdown_body import MarkdownBody
from engine.messages import Role
from engine.printable import printable

_NAMES = {Role.USER: "You", Role.ASSISTANT: "Model", Role.SYSTEM: "System", Role.TOOL: "Tool"}

_ENDS = {
    MessageState.STOPPED: "stopped",
    MessageState.CUT: "cut at its limit",
    MessageState.FAILED: "failed",
}


class MessageView(Vertical, can_focus=True):
    """A message of the path. place: its number among the branches here, and how many there are."""

    def __init__(self, message: Message, place: tuple[int, int]) -> None:
        super().__init__(classes=f"message {message.role}")
        self.message = message
        self._place = place
        self._text = message.text
        self._shown = 0
        self._note = ""

    def compose(self) -> ComposeResult:
        """The parts; those with nothing to say are hidden."""
        yield Static(classes="heading")
        with Collapsible(title="Thinking", collapsed=True, classes="thought"):
            yield Static(classes="thought-text")
        yield MarkdownBody()
        yield Static(classes="figures")

    async def on_mount(self) -> None:
        """Show what there is."""
        self._show_heading()
        await self._show_text()
        self._show_figures()

    async def add_text(self, text: str) -> None:
        """The next piece of a reply."""
        self._note = ""
        self._text += text
        await self._show_text()

    def show_progress(self, done: int, total: int, reused: int) -> None:
        """How far the prompt is."""
        self._note = f"Reading the prompt: {done:,} of {total:,} tokens" + (f", {reused:,} reused" if reused else "")
        self._show_figures()

    async def end(self, message: Message, error: str | None) -> None:
        """The reply is as complete as it gets."""
        self.message = message
        self._note = error or ""
        self._show_figures()

    def set_place(self, place: tuple[int, int]) -> None:
        """The number of branches here has changed."""
        self._place = place
        self._show_heading()

    async def _show_text(self) -> None:
        thought, is_open, answer = parts(self._text)
        fold = self.query_one(Collapsible)
        fold.display = thought is not None
        if thought is not None:
            fold.title = "Thinking …" if is_open else "Thought"
            self.query_one(".thought-text", Static).update(Content(printable(thought)))
        body = self.query_one(MarkdownBody)
        await body.write(answer[self._shown :])
        self._shown = len(answer)

    def _show_heading(self) -> None:
        number, count = self._place
        branch = f"  ‹ {number}/{count} ›" if count > 1 else ""
        self.query_one(".heading", Static).update(Content(_NAMES[self.message.role] + branch))

    def _show_figures(self) -> None:
        figures, line = self.message.figures, []
        if self._note:
            line.append(self._note)
        elif figures is not None:
            if figures.decode_tok_s is not None:
                line.append(f"{figures.decode_tok_s:.1f} tok/s")
            line.append(f"TTFT {figures.ttft_s:.2f} s")
            line.append(f"{figures.reused_tokens:,} reused + {figures.computed_tokens:,} computed")
        if self.message.state in _ENDS:
            line.append(_ENDS[self.message.state])
        widget = self.query_one(".figures", Static)
        widget.display = bool(line)
        widget.update(Content(printable(" · ".join(line))))
