"""Asks where to save the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.chat.widgets.line_input import LineInput
from engine.errors import OctavoError
from engine.printable import quoted


class SaveDialog(ModalScreen[Path | None]):
    """name: what is offered. save: writes the file, or raises OctavoError. Ends with the file, or None without one."""

    BINDINGS: ClassVar = [Binding("escape", "dismiss", "Close")]

    def __init__(self, name: str, save: Callable[[Path], object]) -> None:
        super().__init__()
        self._offered = name
        self._save = save
        self._to_replace: Path | None = None

    def compose(self) -> ComposeResult:
        """A title, the name, and what is wrong with it."""
        with Vertical(classes="dialog"):
            yield Static("Save what was measured so far, as JSON", classes="dialog-title")
            name = LineInput(self._offered, placeholder="name of the file", id="save-name")
            name.cursor_blink = False  # each blink would be drawn while a turn runs
            yield name
            yield Static("Enter saves, Esc closes", id="save-note", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Write it; what exists is replaced by a second Enter only."""
        text = event.value.strip()
        if not text:
            self._note("Give it a name.")
            return
        path = Path(text).expanduser()
        if path.is_dir():
            self._note(f"{quoted(str(path))} is a folder: give the name of a file.")
        elif path.exists() and path != self._to_replace:
            self._to_replace = path
            self._note(f"{quoted(str(path))} is there already: Enter replaces it.")
        else:
            try:
                self._save(path)
            except OctavoError as error:
                self._note(str(error))
            else:
                self.dismiss(path)

    def _note(self, text: str) -> None:
        self.query_one("#save-note", Static).update(Content(text))
