"""The settings of the chat that is shown, and those that new chats begin with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.preferences.settings import ChatSettings, explanation
from app.chat.widgets.line_input import LineInput
from app.chat.widgets.message_keys import key_of
from engine.errors import OctavoError
from engine.printable import one_line

_NAMES = [field.name for field in fields(ChatSettings)]
_NAME_WIDTH = max(map(len, _NAMES)) + 2

Save = Callable[[ChatSettings], None]
"""Puts settings in force. Raises OctavoError."""


class SettingsScreen(ModalScreen[None]):
    """Every change is in force at once."""

    BINDING_GROUP_TITLE = "Settings"
    BINDINGS: ClassVar = [
        Binding("escape", "back", "Leave a value, or the settings", id="settings_back", show=False),
        Binding("f4", "other", "This chat, or new chats", id="settings_other", show=False),
        Binding("delete", "reset", "Back to the default", id="settings_reset", show=False),
    ]
    DEFAULT_CSS = """
    SettingsScreen { align: center middle; }
    SettingsScreen OptionList { text-wrap: nowrap; text-overflow: ellipsis; }
    SettingsScreen Input { margin: 1 0 0 0; }
    SettingsScreen .note { height: 2; }
    SettingsScreen .note.error { color: $text-error; }
    SettingsScreen .usage { color: $text-muted; }
    """

    def __init__(self, chat: ChatSettings, save_chat: Save, defaults: ChatSettings, save_defaults: Save) -> None:
        super().__init__()
        self._sets: list[tuple[str, ChatSettings, Save]] = [
            ("Settings of this chat", chat, save_chat),
            ("Settings that new chats begin with", defaults, save_defaults),
        ]
        self._shown = 0

    def compose(self) -> ComposeResult:
        """The settings, a line for a value, and what it can be."""
        with Vertical(classes="dialog"):
            yield Static(classes="dialog-title")
            yield OptionList()
            yield LineInput(compact=True)
            yield Static(classes="note")
            reset, other, close = (key_of(self, name) for name in ("settings_reset", "settings_other", "settings_back"))
            usage = f"⏎ change  {reset} default  {other} this chat or new ones  {close} close"
            yield Static(Content(usage), classes="usage")

    def on_mount(self) -> None:
        """Begin with this chat."""
        self._show()
        self._stop_typing()

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    @property
    def _input(self) -> Input:
        return self.query_one(Input)

    @property
    def _chosen(self) -> str:
        return _NAMES[self._list.highlighted or 0]

    def _show(self) -> None:
        title, settings, _ = self._sets[self._shown]
        self.query_one(".dialog-title", Static).update(Content(title))
        at = self._list.highlighted or 0
        self._list.clear_options()
        self._list.add_options(Option(_row(name, getattr(settings, name))) for name in _NAMES)
        self._list.highlighted = at

    def _tell(self, text: str, *, error: bool = False) -> None:
        note = self.query_one(".note", Static)
        note.update(Content(text))
        note.set_class(error, "error")

    @on(OptionList.OptionHighlighted)
    def _explain(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._tell(explanation(self._chosen))

    @on(OptionList.OptionSelected)
    def _begin(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        value = getattr(self._sets[self._shown][1], self._chosen)
        self._input.value = "" if value is None else _text(value)
        self._input.display = True
        self._input.focus()

    @on(Input.Submitted)
    def _change(self, event: Input.Submitted) -> None:
        event.stop()
        if self._put(event.value.strip()):
            self._stop_typing()

    def _put(self, text: str) -> bool:
        title, settings, save = self._sets[self._shown]
        try:
            settings = settings.with_text(self._chosen, text)
            save(settings)
        except OctavoError as error:
            self._tell(str(error), error=True)
            return False
        self._sets[self._shown] = (title, settings, save)
        self._show()
        return True

    def _stop_typing(self) -> None:
        self._input.display = False
        self._list.focus()

    def action_back(self) -> None:
        """Leave the value as it is, or close."""
        if self._input.display:
            self._stop_typing()
            self._tell(explanation(self._chosen))
        else:
            self.dismiss()

    def action_other(self) -> None:
        """Show the settings of this chat, or those of new ones."""
        self._shown = 1 - self._shown
        self._stop_typing()
        self._show()

    def action_reset(self) -> None:
        """Give the setting its default."""
        self._put("")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _row(name: str, value: Any) -> Content:
    is_default = value == getattr(ChatSettings(), name)
    shown = "default" if value is None else one_line(_text(value))
    return Content.assemble(f"{name:<{_NAME_WIDTH}}", (shown, "dim" if is_default else "bold"))
