"""All keys, as they are now, and all commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import ClassVar, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.chat.preferences.keys import EVERYWHERE, OwnBinding, key_name, own_bindings
from app.chat.preferences.settings_file import settings_file
from app.chat.writing.slash import COMMANDS
from engine.printable import one_line

_WIDTH = 24
_PLAIN = (
    ("@FILE", 'Attach a text file; @"my file.txt" for a name with spaces'),
    ("//WORD", "Send what begins with a slash as text; so does a space before it"),
)
_TEXT = "text_"
"""Ids of the usual keys of an editor begin so: they come last."""


class HelpScreen(ModalScreen[None]):
    """keys: what the user has changed, by id of the binding."""

    BINDING_GROUP_TITLE = "Help"
    BINDINGS: ClassVar = [Binding("escape,f1,q", "dismiss", "Close the help", id="help_close", show=False)]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen .dialog { height: 90%; padding: 1 0 0 2; }
    HelpScreen .heading { text-style: bold; color: $primary; margin: 1 0 0 0; }
    HelpScreen VerticalScroll { padding: 0 2 0 0; }
    HelpScreen .usage { color: $text-muted; margin: 1 0; }
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """Commands, then the keys by where they act."""
        with Vertical(classes="dialog wide"):
            yield Static("Keys and commands", classes="dialog-title")
            with VerticalScroll():
                yield Static("Commands", classes="heading")
                yield Static(_Rows([(command.usage, command.help) for command in COMMANDS]))
                yield Static(_Rows(_PLAIN))
                for group, members in groupby(sorted(own_bindings(), key=_place), key=lambda one: one.group):
                    yield Static(Content(group), classes="heading")
                    yield Static(_Rows([self._key_row(binding) for binding in members]))
                file = one_line(str(settings_file()))
                note = f'Keys can be changed in {file}, under [keys], by the name in brackets: stop = "ctrl+g"'
                yield Static(Content(note), classes="usage")

    def _key_row(self, binding: OwnBinding) -> tuple[str, str]:
        keys = self._keys[binding.id].split(",") if binding.id in self._keys else binding.keys
        return ", ".join(key_name(key) for key in keys), f"{binding.description} [{binding.id}]"


def _place(binding: OwnBinding) -> tuple[bool, bool, str]:
    """What acts everywhere comes first, the usual keys of an editor last."""
    return binding.id.startswith(_TEXT), binding.group != EVERYWHERE, binding.group


class _Rows(NamedTuple):
    """Keys or commands and what they do, side by side, or below each other where there is no room for that."""

    rows: Sequence[tuple[str, str]]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table.grid(padding=(0, 2, 0, 0))
        is_narrow = options.max_width < 2 * _WIDTH
        if not is_narrow:
            table.add_column(width=_WIDTH)
        table.add_column(ratio=1)
        for left, right in self.rows:
            cells = Text(one_line(left), "bold"), Text(one_line(right))
            for row in [(cell,) for cell in cells] if is_narrow else [cells]:
                table.add_row(*row)
        yield table
