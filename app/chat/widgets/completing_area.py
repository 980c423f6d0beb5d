"""An editor that offers completions for the word that is being typed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual import on
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets.text_area import Edit, EditResult

from app.chat.widgets.completion_popup import CompletionPopup
from app.chat.widgets.prompt_area import PromptArea
from app.chat.writing.completion import Completion, completions
from app.chat.writing.slash import Known


class CompletingArea(PromptArea):
    """Up and Down move among the choices, Tab takes one. What is not typed but comes from elsewhere gets none."""

    BINDING_GROUP_TITLE = "Writing"
    BINDINGS: ClassVar = [
        Binding("tab", "complete", "Take the completion that is offered", id="complete", show=False),
    ]

    def __init__(self, known: Known, folder: Path) -> None:
        """known: what commands can name. folder: what relative paths start from."""
        super().__init__()
        self.folder = folder
        self._known = known
        self._popup = CompletionPopup()

    def on_mount(self) -> None:
        """The choices hang above."""
        assert isinstance(self.parent, Widget)
        self.parent.mount(self._popup, before=self)

    @property
    def is_completing(self) -> bool:
        """Whether there are choices to take."""
        return self._popup.completions is not None

    def stop_completing(self) -> bool:
        """Offer nothing until something is typed; returns whether there were choices."""
        was_completing = self.is_completing
        self._popup.show(None)
        return was_completing

    def take_due(self) -> Completion | None:
        """Take what Enter takes: the choice that the user has moved to, or the first one for an unfinished word."""
        offered, choice = self._popup.completions, self._popup.choice
        if offered is None or choice is None:
            return None
        is_unfinished = offered.typed not in ("", "/", "@") and not offered.is_complete
        if not self._popup.is_chosen and not is_unfinished:
            return None
        self._take(choice)
        return choice

    def action_complete(self) -> None:
        """Take the choice that is highlighted."""
        if choice := self._popup.choice:
            self._take(choice)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without choices, the key is the screen's."""
        return self.is_completing if action == "complete" else super().check_action(action, parameters)

    def action_cursor_up(self, select: bool = False) -> None:
        """Among the choices, or in the text."""
        if self.is_completing and not select:
            self._popup.move(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Among the choices, or in the text."""
        if self.is_completing and not select:
            self._popup.move(1)
        else:
            super().action_cursor_down(select)

    def edit(self, edit: Edit) -> EditResult:
        """Offer what fits now."""
        result = super().edit(edit)
        self._offer()
        return result

    @on(CompletionPopup.Chosen)
    def _take_chosen(self, event: CompletionPopup.Chosen) -> None:
        self._take(event.completion)

    @on(PromptArea.SelectionChanged)
    def _follow_cursor(self) -> None:
        if self.is_completing:
            self._offer()

    def on_blur(self) -> None:
        """Choices belong to what is being typed."""
        self.stop_completing()

    def _offer(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        self._popup.show(completions(before, row == 0, self._known, self.folder))

    def _take(self, choice: Completion) -> None:
        offered = self._popup.completions
        assert offered is not None
        row, column = self.cursor_location
        self.replace(choice.text, (row, offered.start), (row, column), maintain_selection_offset=False)
        if not choice.goes_on:
            self.stop_completing()
