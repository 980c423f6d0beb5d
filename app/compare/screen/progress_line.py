"""Where the comparison is, how much of it is done, and how long it still takes."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from app.compare.screen.blocks import bar

_BAR = 24
_LEAST_BAR = 8


class ProgressLine(Widget):
    """One line."""

    def __init__(self) -> None:
        super().__init__(id="progress")
        self._words = self._left = ""
        self._done = 0.0

    def show(self, words: str, done: float, left: str = "") -> None:
        """words: what is being done; texts are safe. done: from 0 to 1."""
        self._words, self._done, self._left = words, done, left
        self.refresh()

    def render(self) -> Content:
        """The words are cut first."""
        width = self.content_size.width
        tail = f" {self._done:>4.0%}" + (f", {self._left}" if self._left else "")
        bar_width = max(_LEAST_BAR, min(_BAR, width // 4))
        room = max(0, width - bar_width - len(tail) - 1)
        words = self._words if len(self._words) <= room else self._words[: max(0, room - 1)] + "…"
        track = f"▕{bar(self._done, bar_width - 2)}▏"
        return Content.assemble((words.ljust(room + 1), "bold"), (track, "$primary"), tail)
