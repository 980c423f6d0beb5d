"""A list to choose one thing from, which narrows as words are typed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.choosing.choice import Choice
from app.chat.widgets.line_input import LineInput
from app.chat.widgets.message_keys import key_of
from engine.errors import OctavoError
from engine.printable import one_line


class PickerScreen(ModalScreen[str | None]):
    """Ends with the key of a choice, or None. load: finds the choices, in a thread; it may raise OctavoError."""

    BINDING_GROUP_TITLE = "Lists to choose from"
    BINDINGS: ClassVar = [
        Binding("escape", "cancel", "Close the list", id="picker_cancel", show=False),
        Binding("up", "move(-1)", "Up", id="picker_up", show=False),
        Binding("down", "move(1)", "Down", id="picker_down", show=False),
    ]
    DEFAULT_CSS = """
    PickerScreen { align: center middle; }
    PickerScreen .note { color: $text-muted; }
    """

    def __init__(
        self, title: str, load: Callable[[], Sequence[Choice]], *, current: str | None = None, empty: str
    ) -> None:
        """current: the key of the choice in use. empty: what to say when there is none."""
        super().__init__()
        self._heading = title
        self._load = load
        self._current = current
        self._empty = empty
        self._choices: Sequence[Choice] = ()
        self._shown: list[Choice] = []

    def compose(self) -> ComposeResult:
        """Title, filter, list."""
        with Vertical(classes="dialog"):
            yield Static(Content(self._heading), classes="dialog-title")
            yield LineInput(placeholder="Words to narrow the list", compact=True)
            yield OptionList()
            yield Static("Looking …", classes="note")

    def on_mount(self) -> None:
        """Look for the choices without making the screen wait."""
        self.query_one(OptionList).can_focus = False
        self.run_worker(self._find())

    async def _find(self) -> None:
        note = self.query_one(".note", Static)
        try:
            self._choices = await asyncio.to_thread(self._load)
        except OctavoError as error:
            note.update(Content(str(error)))
            return
        self._show("")

    def _show(self, words: str) -> None:
        options = self.query_one(OptionList)
        self._shown = [choice for choice in self._choices if choice.fits(words)]
        options.clear_options()
        options.add_options(Option(self._row(choice), disabled=not choice.is_usable) for choice in self._shown)
        usable = [index for index, choice in enumerate(self._shown) if choice.is_usable]
        in_use = [index for index in usable if self._shown[index].key == self._current]
        options.highlighted = next(iter([*in_use, *usable]), None)
        note = self.query_one(".note", Static)
        otherwise = "Nothing has these words." if self._choices else self._empty
        note.update(Content(self._usage() if self._shown else otherwise))

    def _usage(self) -> str:
        up, down, close = (key_of(self, name) for name in ("picker_up", "picker_down", "picker_cancel"))
        return f"{up} {down} choose  ⏎ take  {close} close"

    def _row(self, choice: Choice) -> Content:
        mark = "● " if choice.key == self._current else "○ "
        row = Content(f"{mark}{one_line(choice.label)}")
        if not choice.details:
            return row
        return Content.assemble(row, "\n  ", (one_line(choice.details), "dim"))

    @on(Input.Changed)
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        self._show(event.value)

    @on(Input.Submitted)
    def _choose(self, event: Input.Submitted) -> None:
        event.stop()
        index = self.query_one(OptionList).highlighted
        if index is not None:
            self.dismiss(self._shown[index].key)

    @on(OptionList.OptionSelected)
    def _choose_by_mouse(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._shown[event.option_index].key)

    def action_move(self, offset: int) -> None:
        """Go to a neighbouring choice."""
        options = self.query_one(OptionList)
        if offset > 0:
            options.action_cursor_down()
        else:
            options.action_cursor_up()

    def action_cancel(self) -> None:
        """Choose nothing."""
        self.dismiss(None)
