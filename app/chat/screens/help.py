"""All keys, as they are now, and all commands."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.chat.keys import OwnBinding, key_name, own_bindings
from app.chat.settings_file import settings_file
from app.chat.slash import COMMANDS
from engine.printable import one_line

_WIDTH = 26
_TEXT = "text_"
"""Ids of the usual keys of an editor begin so: they come last."""


class HelpScreen(ModalScreen[None]):
    """keys: what the user has changed, by id of the binding."""

    BINDING_GROUP_TITLE = "Help"
    BINDINGS: ClassVar = [Binding("escape,f1,q", "dismiss", "Close the help", id="help_close", show=False)]
    DEFAULT_CSS = """
    HelpScreen {
        align: center middle;
        & > VerticalScroll {
            width: 90%;
            max-width: 100;
            height: 90%;
            border: round $primary;
            background: $surface;
            padding: 0 1;
        }
    }
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One scrolling text."""
        with VerticalScroll() as scroll:
            scroll.border_title = Content("Keys and commands")
            scroll.border_subtitle = Content("Esc closes")
            yield Static(Content("\n").join([*self._command_lines(), *self._key_lines()]))

    def _command_lines(self) -> list[Content]:
        rows = [_row(command.usage, command.help) for command in COMMANDS]
        return [
            _heading("Commands"),
            *rows,
            _row("@FILE", 'Attach a text file; @"my file.txt" for a name with spaces'),
            _row("//word, or a space first", "Send what begins with a slash as text"),
        ]

    def _key_lines(self) -> list[Content]:
        bindings = sorted(own_bindings(), key=lambda one: one.id.startswith(_TEXT))
        bindings = sorted(bindings, key=lambda one: (one.id.startswith(_TEXT), one.group != "Everywhere", one.group))
        lines = []
        for group, members in groupby(bindings, key=lambda one: one.group):
            lines += [Content(""), _heading(group), *(self._key_line(one) for one in members)]
        note = f"Keys can be changed in {one_line(str(settings_file()))}, by the name in brackets, under [keys]."
        return [*lines, Content(""), Content.styled(note, "$text-muted")]

    def _key_line(self, binding: OwnBinding) -> Content:
        keys = self._keys[binding.id].split(",") if binding.id in self._keys else binding.keys
        names = ", ".join(key_name(key) for key in keys)
        return _row(names, binding.description, binding.id)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $primary")


def _row(left: str, right: str, name: str = "") -> Content:
    row = Content.assemble((f"  {one_line(left):<{_WIDTH}}", "bold"), f"  {one_line(right)}")
    return Content.assemble(row, (f"  [{name}]", "$text-muted")) if name else row
