"""How long the user waits for the first token, a bar for each step; all lanes have the same scale and the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import set_cell_size
from textual.content import Content
from textual.widget import Widget

from app.compare.results import Results
from app.compare.screen.blocks import bar

_NAME, _SHORT_NAME = 16, 7
_FIGURE, _SHORT_FIGURE, _COMPUTED = 9, 6, 11
_NARROWEST, _NARROW, _WIDE = 24, 34, 50


class Wait(NamedTuple):
    """seconds: the median of a step, None where it was not measured. longest: of all lanes in this step.

    computed_tokens: of the prompt, None where nobody tells.
    """

    step: str
    longest: float
    seconds: float | None = None
    computed_tokens: int | None = None


def waits_of(results: Results, lane: str) -> tuple[Wait, ...]:
    """For every step that any lane has done."""
    waits = []
    for row in results.steps:
        wait = Wait(row.step, max(figure.first_s.median for figure in row.lanes))
        figure = next((figure for figure in row.lanes if figure.lane == lane), None)
        if figure is not None:
            wait = wait._replace(seconds=figure.first_s.median, computed_tokens=figure.computed_tokens)
        waits.append(wait)
    return tuple(waits)


class FirstTokenBars(Widget):
    """The latest steps that there is room for."""

    def __init__(self) -> None:
        super().__init__(classes="first-token")
        self._waits: Sequence[Wait] = ()

    def show(self, waits: Sequence[Wait]) -> None:
        """In the order of the session."""
        self._waits = waits
        self.refresh()

    def render(self) -> Content:
        """A heading and a row for each step; the longest wait that is seen in any lane has a whole bar."""
        width, height = self.content_size
        waits = self._waits[-max(1, height - 1) :]
        longest = max((wait.longest for wait in waits), default=0.0)
        heading = Content.styled(_heading(width), "$foreground-muted")
        return Content("\n").join([heading, *(_row(wait, longest, width) for wait in waits)])


def _row(wait: Wait, longest: float, width: int) -> Content:
    name_width = _SHORT_NAME if width < _NARROW else _NAME
    name = Content.styled(set_cell_size(wait.step, name_width - 1) + " ", "$foreground-muted")
    if wait.seconds is None:
        return name
    tells_computed = width >= _WIDE
    figure = f"{wait.seconds * 1000:,.0f}"
    figure = figure.rjust(_SHORT_FIGURE) if width < _NARROWEST else f"{figure} ms".rjust(_FIGURE)
    bar_width = max(1, width - name_width - len(figure) - (_COMPUTED if tells_computed else 0))
    part = wait.seconds / longest if longest else 0.0
    parts = [name, Content(bar(part, bar_width)), Content(figure)]
    if tells_computed and wait.computed_tokens is not None:
        parts.append(Content.styled(f"{wait.computed_tokens:>{_COMPUTED},}", "$foreground-muted"))
    return Content("").join(parts)


def _heading(width: int) -> str:
    text = "first token, shorter is better" if width >= _NARROWEST else "first token, ms"
    return f"{text}{'computed'.rjust(width - len(text))}" if width >= _WIDE else text
