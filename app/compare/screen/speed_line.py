"""Tokens per second after the first token, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Sparkline

from app.compare.results import Results
from app.compare.screen.blocks import column


def speeds_of(results: Results, lane: str) -> list[float]:
    """For every step that any lane has done, 0 where there is none."""
    figures = [{figure.lane: figure for figure in row.lanes}.get(lane) for row in results.steps]
    spreads = [figure.decode_tokens_per_s if figure else None for figure in figures]
    return [spread.median if spread else 0.0 for spread in spreads]


class SpeedLine(Sparkline):
    """A sparkline from 0 to the same top in every lane, and with room for steps to come.

    Textual's own goes from the least to the greatest of its values, so that noise would look like a mountain, and two
    lanes of different speed like each other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._top = 0.0
        self._n_steps = 1

    def show(self, speeds: Sequence[float], top: float, n_steps: int) -> None:
        """top: tokens per second of a full column. n_steps: how many there will be."""
        self._top, self._n_steps = top, max(1, n_steps)
        self.data = speeds
        self.refresh()

    def render(self) -> Content:
        """As many cells for each step."""
        width, height = self.content_size
        cells = max(1, width // self._n_steps)
        speeds = list(self.data or ())[-(width // cells) :] if width else []
        columns = [column(speed / self._top if self._top else 0.0, height) for speed in speeds]
        gap = " " if cells > 1 else ""
        bar = cells - len(gap)
        return Content("\n".join("".join(each[row] * bar + gap for each in columns) for row in range(height)))
