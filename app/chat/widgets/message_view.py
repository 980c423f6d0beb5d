"""One message: who wrote it, its thought, its text, what it cost; and the keys that do something with it."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from textual.binding import Binding
from textual.content import Content
from textual.message import Message as Posted
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from app.chat.conversation import Message, MessageState
from app.chat.markdown_text import code_blocks
from app.chat.message_texts import CONTINUABLE, figures, heading, prompt_progress
from app.chat.reply import Reply
from app.chat.thinking import ThoughtAndAnswer, parts
from app.chat.widgets.copying import copy_text
from app.chat.widgets.folds import Fold, LongText, ThoughtFold, is_long
from app.chat.widgets.lazy import Lazy, wrapped_lines
from app.chat.widgets.markdown_body import MarkdownBody, PlainBody
from engine.messages import Role
from engine.printable import one_line, printable

_PERIOD_S = 1 / 20
"""Between two looks at a reply that is being written: drawing must not take the time of computing."""

_FOLDED_LINES = 8


class Wish(enum.StrEnum):
    """What the user wants done with a message."""

    EDIT = "edit"
    REGENERATE = "regenerate"
    CONTINUE = "continue"
    DELETE = "delete"
    PREVIOUS_BRANCH = "previous_branch"
    NEXT_BRANCH = "next_branch"


class MessageView(Lazy, can_focus=True):
    """A message of the path. place: its number among the branches here, and how many there are. reply: if it is one
    that is being written.
    """

    DEFAULT_CSS = """
    MessageView { margin: 1 0 0 0; padding: 0 0 0 1; border-left: blank; }
    MessageView:focus { border-left: outer $accent; }
    MessageView > .heading { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("e", "wish('edit')", "edit", show=False, id="message-edit"),
        Binding("r", "wish('regenerate')", "again", show=False, id="message-regenerate"),
        Binding("g", "wish('continue')", "continue", show=False, id="message-continue"),
        Binding("c", "copy", "copy", show=False, id="message-copy"),
        Binding("y", "copy_code", "code", show=False, id="message-copy-code"),
        Binding("left,left_square_bracket", "wish('previous_branch')", "‹", show=False, id="message-previous-branch"),
        Binding("right,right_square_bracket", "wish('next_branch')", "›", show=False, id="message-next-branch"),
        Binding("enter,space", "fold", "fold", show=False, id="message-fold"),
        Binding("d,delete", "wish('delete')", "delete", show=False, id="message-delete"),
    ]

    @dataclass
    class Wanted(Posted):
        """The user wants something done with a message."""

        message_id: int
        wish: Wish

    def __init__(self, message: Message, place: tuple[int, int], reply: Reply | None = None) -> None:
        super().__init__(classes=f"message {message.role}")
        self.message = message
        self._place = place
        self._reply = reply
        self._text = reply.text if reply else message.text
        self._n_shown = 0
        self._progress = ""
        self._error = ""
        self._n_copied = 0
        self._timer: Timer | None = None
        self._lock = asyncio.Lock()
        self._heading = self._figures = Static()
        self._body = MarkdownBody()
        self._fold: Fold | None = None

    # --- what Transcript tells ---

    def grow(self, text: str) -> None:
        """The reply is this now: what is new is shown at the next look."""
        self._text = text
        if self._timer is None:
            self._timer = self.set_interval(_PERIOD_S, self._look)

    def show_progress(self, done: int, total: int, reused: int) -> None:
        """How far the prompt is."""
        self._progress = prompt_progress(done, total, reused)
        self._show_figures()

    async def revise(self, message: Message, reply: Reply | None = None, error: str = "") -> None:
        """It has changed: a reply has ended, or goes on."""
        self.message, self._reply, self._error = message, reply, error
        self._text = reply.text if reply else message.text
        self._progress = ""
        if reply is None and self._timer is not None:
            self._timer.stop()
            self._timer = None
        await self._look()
        self._show_heading()
        self._show_figures()

    def set_place(self, place: tuple[int, int]) -> None:
        """The number of branches here has changed."""
        if place != self._place:
            self._place = place
            self._show_heading()

    # --- widgets ---

    def estimate(self, width: int) -> int:
        """Heading, text and figures."""
        if self.message.role is not Role.ASSISTANT:
            return 1 + (_FOLDED_LINES if is_long(self._text) else wrapped_lines(self._text, width))
        return 3 + wrapped_lines(self._parts().answer, width)

    def parts(self) -> Iterable[Widget]:
        """Only what there is something to say for."""
        self._fold = None
        self._heading = Static(classes="heading")
        self._figures = Static(classes="figures")
        self._show_heading()
        self._show_figures()
        yield self._heading
        if self.message.role is Role.ASSISTANT:
            thought, is_open, answer = self._parts()
            if thought is not None:
                self._fold = ThoughtFold(thought, self._thought_s(), is_open=is_open)
                yield self._fold
            self._n_shown = len(answer)
            self._body = MarkdownBody(answer, is_whole=self._is_ended)
            yield self._body
        elif is_long(self._text):
            self._fold = LongText(self._text)
            yield self._fold
        else:
            yield PlainBody(self._text)
        yield self._figures

    async def build(self) -> None:
        """Make the widgets, and not while new text comes in."""
        async with self._lock:
            await super().build()

    async def drop(self) -> None:
        """The same."""
        async with self._lock:
            await super().drop()

    @property
    def _is_ended(self) -> bool:
        return self.message.state is not MessageState.STREAMING

    def _parts(self) -> ThoughtAndAnswer:
        return parts(self._text, is_ended=self._is_ended)

    def _thought_s(self) -> float | None:
        """For how long the model has thought, or has been asked to."""
        if self._reply is not None:
            return self._reply.thought_s or time.monotonic() - self._reply.started
        return self.message.figures.thought_s if self.message.figures else None

    async def _look(self) -> None:
        """Show what is new."""
        if self.message.role is not Role.ASSISTANT:
            return
        async with self._lock:
            if not self.is_built:
                self.forget_height()
                return
            thought, is_open, answer = self._parts()
            if thought is not None:
                await self._show_thought(thought, is_open=is_open)
            new, self._n_shown = answer[self._n_shown :], len(answer)
            if new:
                if self._progress:
                    self._progress = ""
                    self._show_figures()
                await self._body.write(new)
            if self._is_ended:
                await self._body.finish()

    async def _show_thought(self, thought: str, *, is_open: bool) -> None:
        if isinstance(self._fold, ThoughtFold):
            await self._fold.show(thought, self._thought_s(), is_open=is_open)
        else:
            self._progress = ""
            self._show_figures()
            self._fold = ThoughtFold(thought, self._thought_s(), is_open=is_open)
            await self.mount(self._fold, before=self._body)

    def _show_heading(self) -> None:
        model = self.message.figures.model if self.message.figures else self._reply.model if self._reply else ""
        text = heading(self.message, model, self._place, datetime.now(UTC))
        keys = f"   {self._keys()}" if self.has_focus else ""
        self._heading.update(Content(one_line(text)).append(Content(keys).stylize("dim")), layout=False)

    def _show_figures(self) -> None:
        text = self._progress or figures(self.message, self._error, self._key("message-continue"))
        if not self._is_ended and not self._text and not text:
            text = "Waiting for the model"
        self._figures.display = bool(text)
        self._figures.update(Content(printable(text)))

    # --- keys ---

    def on_focus(self) -> None:
        """Say which keys there are."""
        self._show_heading()

    def on_blur(self) -> None:
        """They do nothing now."""
        self._show_heading()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Only what makes sense here."""
        match action, parameters:
            case "wish", ("continue",):
                return self.message.state in CONTINUABLE and self.message.role is Role.ASSISTANT
            case "wish", ("previous_branch" | "next_branch",):
                return self._place[1] > 1
            case "copy_code", _:
                return "```" in self._text or "~~~" in self._text
            case "fold", _:
                return self._fold is not None
        return True

    def action_wish(self, wish: str) -> None:
        """Tell whoever owns the chat."""
        self.post_message(self.Wanted(self.message.id, Wish(wish)))

    def action_copy(self) -> None:
        """Copy the text, of a reply without its thought."""
        is_reply = self.message.role is Role.ASSISTANT
        copy_text(self.app, self._parts().answer if is_reply else self._text, "Message")

    def action_copy_code(self) -> None:
        """Copy a code block, and at the next press the next one."""
        blocks = code_blocks(self._text)
        if blocks:
            number = self._n_copied % len(blocks)
            self._n_copied += 1
            copy_text(self.app, blocks[number], f"Code block {number + 1} of {len(blocks)}")

    async def action_fold(self) -> None:
        """Unfold a thought or a long text, or fold it again."""
        if self._fold is not None:
            self.post_message(self.Toggling(self._fold))

    def _keys(self) -> str:
        """The keys that do something here, as they are set."""
        shown: dict[str, str] = {}
        for active in self.screen.active_bindings.values():
            if active.node is self and active.enabled and active.binding.description not in shown:
                shown[active.binding.description] = self.app.get_key_display(active.binding)
        return "  ".join(f"{key} {description}" for description, key in shown.items())

    def _key(self, binding_id: str) -> str:
        return next((key for key, bindings in self._bindings.key_to_bindings.items() for one in bindings if one.id == binding_id), "")
