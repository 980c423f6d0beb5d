"""The answer that a lane gives to the question of the current step."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from engine.printable import one_line, printable

_MOST = 4_000
"""Characters that are kept: more is never seen at once, and a server may send without end."""
_TALL = 8
"""Lines from which on the question may have two."""


class AnswerView(Widget):
    """The question, and the end of the answer, as much as there is room for. text: of the answer so far.

    It is drawn while a turn runs, so that takes as little as possible: one widget of a size of its own, where widgets
    that scroll and grow would make Textual arrange the whole screen anew for each piece.
    """

    def __init__(self) -> None:
        super().__init__(classes="answer")
        self.text = ""
        self._question = ""

    def ask(self, question: str) -> None:
        """Another question, which has no answer yet."""
        self._question, self.text = one_line(question), ""
        self.refresh()

    def add(self, text: str) -> None:
        """What comes next of the answer; control characters do nothing, and neither does markup."""
        self.text = (self.text + printable(text))[-_MOST:]
        self.refresh()

    def render(self) -> Content:
        """The question is cut at its end, the answer at its beginning."""
        width, height = self.content_size
        if not (width and height):
            return Content("")
        asked = Content.styled(self._question, "italic $foreground-muted").wrap(width)
        room = 2 if height >= _TALL else 1
        question = asked[:room]
        if len(asked) > room:
            question[-1] = question[-1].truncate(width - 1, ellipsis=False) + "…"
        answer = Content(self.text.strip().expandtabs()).wrap(width)
        return Content("\n").join([*question, *answer[-max(1, height - len(question)) :]])
