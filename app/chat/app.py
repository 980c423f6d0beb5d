"""The Textual app: owns the session, and passes its events to the screen."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme

from app.chat.answering.engine_host import OpenEngine
from app.chat.beginning import FRESH, Beginning
from app.chat.errors import SettingsError
from app.chat.events import SessionEvent
from app.chat.preferences.keys import keymap, own_bindings
from app.chat.preferences.settings import AppSettings
from app.chat.preferences.settings_file import write_settings
from app.chat.preferences.themes import DARK, THEMES
from app.chat.screens.chat import ChatScreen
from app.chat.screens.help import HelpScreen
from app.chat.session import Session
from app.chat.storage.store import ChatStore
from engine.client import EngineClient
from engine.printable import printable, quoted

_FUNCTION_KEY = re.compile(r"f\d+")


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

    def __init__(
        self,
        store: ChatStore,
        settings: AppSettings,
        open_engine: OpenEngine = EngineClient,
        beginning: Beginning = FRESH,
    ) -> None:
        super().__init__()
        self.beginning = beginning
        self.settings = settings
        self.keys: dict[str, str] = {}
        """What the user presses instead of the usual, by id of the binding."""
        self.session = Session(store, settings.chat, self._post, self._on_session, open_engine)
        self._chat_screen = ChatScreen(self.session, beginning)
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = settings.theme if settings.theme in self.available_themes else DARK.name

    def on_mount(self) -> None:
        """Show the chat at once; the model loads behind it."""
        self.keys, problems = keymap(self.settings.keys, own_bindings())
        self.set_keymap(self.keys)
        self.push_screen(self._chat_screen)
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        if self.settings.theme not in (None, *self.available_themes):
            problems.append(
                f"There is no theme {quoted(str(self.settings.theme), 40)}: the command palette shows all, as Theme."
            )
        for problem in (*self.beginning.problems, *problems):
            self.notify(problem, severity="warning", markup=False, timeout=15)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Tell the user something, in which nothing acts on the terminal, whatever names and reasons are in it."""
        super().notify(printable(message), title=title, severity=severity, timeout=timeout, markup=markup)

    def on_ready(self) -> None:
        """What is loaded by now stays: to look through it for garbage would hold keys up for a tenth of a second."""
        gc.collect()
        gc.freeze()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Of Textual's own commands for the palette, those that ours do not have: the themes."""
        return [command for command in super().get_system_commands(screen) if command.title == "Theme"]

    def get_key_display(self, binding: Binding) -> str:
        """A key as hints name it: F5 as it is printed on the key, the others as Textual does."""
        shown = super().get_key_display(binding)
        return shown.upper() if _FUNCTION_KEY.fullmatch(shown) else shown

    def action_help(self) -> None:
        """Show keys and commands."""
        self.push_screen(HelpScreen(self.keys))

    def _keep_theme(self, theme: Theme) -> None:
        """Remember the theme that the user has chosen."""
        name = None if theme.name == DARK.name else theme.name
        if name != self.settings.theme:
            try:
                self.change_settings(replace(self.settings, theme=name))
            except SettingsError as error:
                self.notify(str(error), severity="error", markup=False)

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
        """In order, and after the screen is there; its widgets are gone when the app is being closed."""
        if self.is_running:
            await self._chat_screen.take(message.event)

    def on_unmount(self) -> None:
        """End the engines with the app."""
        self.session.close()
