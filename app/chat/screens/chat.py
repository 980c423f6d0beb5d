"""The screen on which a chat happens."""

from __future__ import annotations

from textual import on
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical

from app.chat.beginning import Beginning
from app.chat.events import MessageAdded, PromptProgress, ReplyEnded, ReplyText, SessionEvent, TitleChanged
from app.chat.open_chat import OpenChat
from app.chat.screens.chat_commands import ChatCommands
from app.chat.screens.reader import Reader
from app.chat.session import Session
from app.chat.widgets.composer import Composer
from app.chat.widgets.pool_panel import PoolPanel
from app.chat.widgets.reading_hint import ReadingHint
from app.chat.widgets.sidebar import Sidebar
from app.chat.widgets.status_bar import StatusBar
from app.chat.widgets.transcript import Transcript
from app.chat.writing.palette import SlashCommands


class ChatScreen(Reader):
    """Shows one chat of the session; others go on behind it."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("ctrl+c", "copy_text", "Copy what is selected", show=False, id="copy_selection"),
        Binding("escape,ctrl+c", "stop", "Stop the reply", show=False, id="stop"),
        Binding("ctrl+n", "new_chat", "New chat", id="new_chat"),
        Binding("ctrl+o", "model", "Choose the model", show=False, id="model"),
        Binding("f4", "settings", "Settings", show=False, id="settings"),
    ]
    COMMANDS = {SlashCommands}  # noqa: RUF012

    def __init__(self, session: Session, beginning: Beginning) -> None:
        super().__init__(session, beginning)
        self.commands = ChatCommands(self)

    def compose(self) -> ComposeResult:
        """The chats, the one that is shown with the composer, the KV pool, and the status below them all."""
        with Horizontal():
            yield Sidebar(self.session, self.attention)
            with Vertical(id="main"):
                yield Transcript()
                yield ReadingHint()
                yield Composer(self.commands.known)
            yield PoolPanel()
        yield StatusBar()

    async def on_mount(self) -> None:
        """Begin with a chat, and load its model while the user writes."""
        await self.begin()

    def focus_chat(self) -> None:
        """Put the cursor where the user writes."""
        self.query_one(Composer).focus()

    async def show_chat(self, chat: OpenChat, message_id: int | None = None) -> None:
        """Show another chat, and the place of a message in it."""
        if chat is not self.chat:
            self.session.close_chat(self.chat)
        self.chat = chat
        self.query_one(Composer).show_chat(chat.chat_id)
        await self.query_one(Transcript).show(chat)
        if message_id is not None:
            self.call_after_refresh(self.query_one(Transcript).go_to, message_id)
        self.chat_shown()

    @on(Composer.Submitted)
    async def _send(self, event: Composer.Submitted) -> None:
        await self.commands.submit(event.draft)

    def action_stop(self) -> None:
        """Stop the reply that is being written; without one, the key is the app's."""
        if self.chat.reply is None:
            raise SkipAction
        self.session.stop(self.chat)

    def action_model(self) -> None:
        """Choose the model of this chat."""
        self.commands.choose_model()

    def action_settings(self) -> None:
        """Change the settings of this chat and of new ones."""
        self.commands.set()

    async def action_new_chat(self) -> None:
        """Begin another chat."""
        await self.show_chat(self.session.new_chat())

    async def take(self, event: SessionEvent) -> None:
        """Show what the session tells."""
        if not self.is_attached:
            return  # the app is about to end
        transcript = self.query_one(Transcript)
        match event:
            case TitleChanged(chat_id, title) if chat_id == self.chat.chat_id:
                self.sub_title = title
            case MessageAdded(chat_id, message) if chat_id == self.chat.chat_id:
                await transcript.add(message)
            case PromptProgress(_, message_id, done, total, reused):
                if view := transcript.view_of(message_id):
                    view.show_progress(done, total, reused)
            case ReplyText(_, message_id, _):
                transcript.grow(message_id)
            case ReplyEnded(_, message, error):
                await transcript.end(message, "" if error is None else self.failure_text(error))
        self.follow(event)
