"""The Textual app: owns the session, and passes its events to the screen."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import App
from textual.binding import Binding
from textual.message import Message

from app.chat.engine_host import OpenEngine
from app.chat.events import SessionEvent
from app.chat.keys import keymap, own_bindings
from app.chat.screens.chat import ChatScreen
from app.chat.screens.help import HelpScreen
from app.chat.session import Session
from app.chat.settings import AppSettings
from app.chat.settings_file import write_settings
from app.chat.store import ChatStore
from app.chat.themes import DARK, THEMES
from engine.client import EngineClient


class ChatApp(App[None]):
    """Chats with models on this machine."""

    TITLE = "Octavo"
    CSS_PATH = "chat.tcss"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("f1", "help", "Help", id="help"),
        Binding("ctrl+p", "command_palette", "All commands", show=False, priority=True, id="command_palette"),
        Binding("ctrl+q", "quit", "Leave Octavo", show=False, priority=True, id="quit"),
    ]

    class Told(Message):
        """The session has something to say."""

        def __init__(self, event: SessionEvent) -> None:
            super().__init__()
            self.event = event

    def __init__(self, store: ChatStore, settings: AppSettings, open_engine: OpenEngine = EngineClient) -> None:
        super().__init__()
        self.settings = settings
        self.keys: dict[str, str] = {}
        """What the user presses instead of the usual, by id of the binding."""
        self.session = Session(store, settings.chat, self._post, self._on_session, open_engine)
        self._chat_screen = ChatScreen(self.session)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = settings.theme if settings.theme in self.available_themes else DARK.name

    def on_mount(self) -> None:
        """Show the chat at once; the model loads behind it."""
        self.push_screen(self._chat_screen)
        self.keys, problems = keymap(self.settings.keys, own_bindings())
        self.set_keymap(self.keys)
        for problem in problems:
            self.notify(problem, severity="warning", markup=False, timeout=15)

    def action_help(self) -> None:
        """Show keys and commands."""
        self.push_screen(HelpScreen(self.keys))

    def change_settings(self, settings: AppSettings) -> None:
        """Keep other settings, which new chats begin with. Raises SettingsError, and changes nothing then."""
        write_settings(self.settings, settings)
        self.settings = settings
        self.session.defaults = settings.chat

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
