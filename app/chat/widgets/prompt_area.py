"""A text editor in which long pasted texts are placeholders that act as one character."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult, Location

from app.chat.wording.pictures import pictures
from app.chat.writing.pastes import Pastes, is_long, unix_lines

_PLACEHOLDER_STYLE = Style(bold=True, underline=True)
_SELECT_LINE = "select_line"
"""Its key, F6, is the app's."""


class PromptArea(TextArea, inherit_bindings=False):
    """pastes: the texts behind the placeholders.

    A placeholder is passed, selected and deleted as a whole. Control characters are kept, and shown as pictures.
    """

    BINDING_GROUP_TITLE = "Editing text"
    BINDINGS: ClassVar = [
        replace(binding, id="text_" + binding.action.replace("(True)", "_select"))  # Textual gives them none
        for binding in TextArea.BINDINGS
        if isinstance(binding, Binding) and binding.action != _SELECT_LINE
    ]

    def __init__(self) -> None:
        self.pastes = Pastes()
        super().__init__(id="composer", soft_wrap=True, highlight_cursor_line=False)

    def insert_pasted(self, text: str) -> None:
        """Put a text in place of the selection, as a placeholder if it is long."""
        text = unix_lines(text)
        inserted = self.pastes.fold(text) if is_long(text) else text
        self.replace(inserted, *self.selection, maintain_selection_offset=False)

    def action_unfold(self) -> None:
        """Put the text in place of the placeholder before or after the cursor."""
        row, column = self.cursor_location
        for start, end in self.pastes.spans(self.document.get_line(row)):
            if start <= column <= end:
                placeholder = self.get_text_range((row, start), (row, end))
                text = self.pastes.expand(placeholder)
                self.replace(text, (row, start), (row, end), maintain_selection_offset=False)
                return

    def edit(self, edit: Edit) -> EditResult:
        """No edit takes a part of a placeholder, or comes inside one."""
        top, bottom = self._outside(edit.top, before=True), self._outside(edit.bottom, before=False)
        if (top, bottom) != (edit.top, edit.bottom):
            if edit.top == edit.bottom:
                top = bottom
            edit = Edit(edit.text, top, bottom, edit.maintain_selection_offset)
        return super().edit(edit)

    def move_cursor(
        self, location: Location, select: bool = False, center: bool = False, record_width: bool = True
    ) -> None:
        """The cursor jumps over a placeholder."""
        before = location < self.cursor_location
        super().move_cursor(self._outside(location, before=before), select, center, record_width)

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn."""
        line = self.document.get_line(line_index)
        shown = Text(pictures(line), end="", no_wrap=True)
        for start, end in self.pastes.spans(line):
            shown.stylize(_PLACEHOLDER_STYLE, start, end)
        return shown

    async def _on_key(self, event: events.Key) -> None:
        """Carry out at once what a key here is bound to.

        Textual does so only when the key has been passed on to the app. By then, what was typed after it is in the
        text: the beginning of a fast typist's next message would be sent with the one that Enter was to send.
        """
        if event.is_printable:
            return
        if event.key == "enter":
            event.prevent_default()  # it begins a line only if it is bound to that
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.node is self and await self.app.run_action(active.binding.action, self):
            event.prevent_default().stop()

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default().stop()
        self.insert_pasted(event.text)

    def action_paste(self) -> None:
        """Paste what was cut or copied in the app."""
        self.insert_pasted(self.app.clipboard)

    def _outside(self, location: Location, *, before: bool) -> Location:
        """The location, or an end of the placeholder that it is inside of."""
        row, column = location
        if row >= self.document.line_count:
            return location
        for start, end in self.pastes.spans(self.document.get_line(row)):
            if start < column < end:
                return row, start if before else end
        return location
