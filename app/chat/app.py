"""The Textual app: owns the session, and passes its events to the screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App
from textual.message import Message

from app.chat.engine_host import OpenEngine
from app.chat.events import SessionEvent
from app.chat.screens.chat import ChatScreen
from app.chat.session import Session
from app.chat.settings import AppSettings
from app.chat.store import ChatStore
from engine.client import EngineClient


class ChatApp(App[None]):
    """Chats with models on this machine."""

    TITLE = "Octavo"
    CSS_PATH = "chat.tcss"

    class Told(Message):
        """The session has something to say."""

        def __init__(self, event: SessionEvent) -> None:
            super().__init__()
            self.event = event

    def __init__(self, store: ChatStore, settings: AppSettings, open_engine: OpenEngine = EngineClient) -> None:
        super().__init__()
        self.settings = settings
        self.session = Session(store, settings.chat, self._post, self._on_session, open_engine)
        self._chat_screen = ChatScreen(self.session)

    def on_mount(self) -> None:
        """Show the chat at once; the model loads behind it."""
        self.push_screen(self._chat_screen)

    def _post(self, work: Callable[[], None]) -> None:
        self.call_later(work)  # any thread may do this

    def _on_session(self, event: SessionEvent) -> None:
        self.post_message(self.Told(event))

    async def on_chat_app_told(self, message: Told) -> None:
        """In order, and after the screen is there."""
        await self._chat_screen.take(message.event)

    def on_unmount(self) -> None:
        """End the engines with the app."""
        self.session.close()
