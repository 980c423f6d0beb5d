"""The choices that complete what is being typed, above the composer, which keeps the focus."""

from __future__ import annotations

from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.writing.completion import Completion, Completions
from engine.printable import one_line

_ROWS = 8
_LABEL_WIDTH = 26


class CompletionPopup(OptionList, can_focus=False):
    """Hidden while there is nothing to choose."""

    DEFAULT_CSS = """
    CompletionPopup {
        overlay: screen;
        display: none;
        height: auto;
        max-height: 10;
        max-width: 100;
        border: round $primary 60%;
        background: $surface;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    class Chosen(Message):
        """The user has clicked on a choice."""

        def __init__(self, completion: Completion) -> None:
            super().__init__()
            self.completion = completion

    def __init__(self) -> None:
        super().__init__()
        self.completions: Completions | None = None
        self.is_chosen = False
        """Whether the user has moved to a choice, rather than being offered the first one."""

    def show(self, completions: Completions | None) -> None:
        """Offer other choices, or none."""
        if completions == self.completions:
            return
        self.completions, self.is_chosen = completions, False
        self.display = completions is not None
        self.clear_options()
        if completions is not None:
            self.add_options(Option(_row(choice)) for choice in completions.choices)
            self.highlighted = 0
            self.styles.offset = (0, -min(len(completions.choices), _ROWS) - 2)

    def move(self, offset: int) -> None:
        """Go to a neighbouring choice, from the last on to the first."""
        if self.completions is not None and self.highlighted is not None:
            self.is_chosen = True
            self.highlighted = (self.highlighted + offset) % len(self.completions.choices)

    @property
    def choice(self) -> Completion | None:
        """The one that would be taken."""
        if self.completions is None or self.highlighted is None:
            return None
        return self.completions.choices[self.highlighted]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """By the mouse; the keyboard belongs to the composer."""
        event.stop()
        if self.completions is not None:
            self.post_message(self.Chosen(self.completions.choices[event.option_index]))


def _row(choice: Completion) -> Content:
    label = one_line(choice.label)
    if not choice.hint:
        return Content(label)
    return Content(label.ljust(_LABEL_WIDTH)) + Content("  ") + Content(one_line(choice.hint)).stylize("dim")
