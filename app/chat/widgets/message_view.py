"""One message: who wrote it, its thought, its text, what it cost; and the keys that do something with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from textual.content import Content
from textual.message import Message as Posted
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from app.chat.answering.reply import Reply
from app.chat.answering.thinking import ThoughtAndAnswer, parts
from app.chat.conversation import Message, MessageState
from app.chat.widgets.copying import copy_text
from app.chat.widgets.folds import Fold, LongText, ThoughtFold, is_long
from app.chat.widgets.lazy import Lazy, wrapped_lines
from app.chat.widgets.markdown_body import MarkdownBody, PlainBody
from app.chat.widgets.message_keys import CONTINUE_KEY, MESSAGE_BINDINGS, Wish, key_of
from app.chat.wording.markdown_text import code_blocks
from app.chat.wording.message_texts import CONTINUABLE, MessagePlace, figures, heading, prompt_progress
from engine.messages import Role
from engine.printable import one_line, printable

_PERIOD_S = 1 / 15
"""Between two looks at a reply that is being written: drawing must not take the time of computing."""

_FOLDED_LINES = 8


class MessageView(Lazy, can_focus=True):
    """A message of the path. changing: LazyScroll's. reply: if it is one that is being written."""

    DEFAULT_CSS = """
    MessageView { margin: 1 0 0 0; padding: 0 0 0 1; border-left: blank; }
    MessageView:focus { border-left: outer $accent; }
    MessageView > .heading { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    HOLDS_LAZY = True
    BINDING_GROUP_TITLE = "A message"
    BINDINGS = MESSAGE_BINDINGS

    @dataclass
    class Wanted(Posted):
        """The user wants something done with a message."""

        message_id: int
        wish: Wish

    def __init__(
        self, message: Message, place: MessagePlace, changing: asyncio.Lock, reply: Reply | None = None
    ) -> None:
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
        self._changing = changing
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

    def set_place(self, place: MessagePlace) -> None:
        """There are other branches here now, or other messages below."""
        if place != self._place:
            self._place = place
            self._show_heading()
            self._show_figures()

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

    @property
    def _can_go_on(self) -> bool:
        return self._place.is_last and self.message.state in CONTINUABLE

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
        async with self._changing:
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
        self._heading.update(Content(one_line(text)), layout=False)

    def _show_figures(self) -> None:
        key = key_of(self, CONTINUE_KEY) if self._can_go_on else ""
        text = self._progress or figures(self.message, self._error, key)
        if not self._is_ended and not self._text and not text:
            text = "Waiting for the model"
        self._figures.display = bool(text)
        self._figures.update(Content(printable(text)))

    # --- keys ---

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Only what makes sense here."""
        match action, parameters:
            case "wish", ("continue",):
                return self._can_go_on
            case "wish", ("previous_branch" | "next_branch",):
                return self._place.n_branches > 1
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

    def action_fold(self) -> None:
        """Unfold a thought or a long text, or fold it again."""
        if self._fold is not None:
            self._fold.ask()
