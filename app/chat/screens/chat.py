"""The screen on which a chat happens."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.screen import Screen

from app.chat.events import (
    EngineFailed,
    EngineLoading,
    EngineReady,
    MessageAdded,
    Noticed,
    PromptProgress,
    ReplyEnded,
    ReplyText,
    SessionEvent,
    TitleChanged,
)
from app.chat.session import OpenChat, Session
from app.chat.widgets.composer import Composer
from app.chat.widgets.status_bar import StatusBar
from app.chat.widgets.transcript import Transcript
from engine.errors import OctavoError


class ChatScreen(Screen[None]):
    """Shows one chat of the session; others go on behind it."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape", "stop", "Stop", show=False),
        Binding("ctrl+n", "new_chat", "New chat"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.chat: OpenChat = session.new_chat()

    def compose(self) -> ComposeResult:
        """Transcript, composer and status."""
        with Horizontal(), Vertical(id="main"):
            yield Transcript()
            yield Composer()
            yield StatusBar()

    async def on_mount(self) -> None:
        """Begin with a new chat, and load its model while the user writes."""
        await self.show_chat(self.chat)
        self.query_one(Composer).focus()

    async def show_chat(self, chat: OpenChat) -> None:
        """Show another chat."""
        if chat is not self.chat:
            self.session.close_chat(self.chat)
        self.chat = chat
        await self.query_one(Transcript).show(chat.conversation)
        try:
            self.session.prepare(chat)
        except OctavoError as error:
            self.notify(str(error), severity="error", markup=False)

    @on(Composer.Submitted)
    def _send(self, event: Composer.Submitted) -> None:
        self.session.send(self.chat, event.text)

    def action_stop(self) -> None:
        """Stop the reply that is being written."""
        self.session.stop(self.chat)

    async def action_new_chat(self) -> None:
        """Begin another chat."""
        await self.show_chat(self.session.new_chat())

    async def take(self, event: SessionEvent) -> None:
        """Show what the session tells."""
        transcript, status = self.query_one(Transcript), self.query_one(StatusBar)
        match event:
            case EngineLoading(fraction):
                status.show(f"Loading {self._model()}: {fraction:.0%}")
            case EngineReady(loaded):
                status.show(self._model(), loaded.engine, f"window {loaded.context:,}")
            case EngineFailed(error):
                self.notify(str(error), severity="error", markup=False)
            case Noticed(_, text):
                self.notify(text, markup=False)
            case TitleChanged(chat_id, title) if chat_id == self.chat.chat_id:
                self.sub_title = title
            case MessageAdded(chat_id, message) if chat_id == self.chat.chat_id:
                await transcript.add(message)
            case PromptProgress(_, message_id, done, total, reused):
                if view := transcript.view_of(message_id):
                    view.show_progress(done, total, reused)
            case ReplyText(_, message_id, text):
                if view := transcript.view_of(message_id):
                    await view.add_text(text)
            case ReplyEnded(_, message, error):
                if view := transcript.view_of(message.id):
                    await view.end(message, None if error is None else str(error))

    def _model(self) -> str:
        path = self.session.host.path
        return path.stem if path else ""
