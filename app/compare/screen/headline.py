"""The figure that the comparison is about: tokens per second that one user gets from a lane."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from app.compare.report_tables import ratio_text, speed_text
from app.compare.session_results import SessionFigure
from app.compare.statistics import Ratio, Verdict


class Headline(Widget):
    """One line: the speed, and its ratio to the first lane's."""

    def __init__(self) -> None:
        super().__init__(classes="headline")
        self._figure: SessionFigure | None = None

    def show(self, figure: SessionFigure | None) -> None:
        """None while there is none."""
        self._figure = figure
        self.refresh()

    def render(self) -> Content:
        """In as many words as there is room for."""
        if self._figure is None:
            return Content("")
        width = self.content_size.width
        speed = speed_text(self._figure.tokens_per_s)
        texts = [
            f"{speed}{unit}{ratio}"
            for unit, ratio in zip(
                (" tokens/s for one user", " tokens/s", " tok/s", "/s"), _ratios(self._figure.ratio), strict=True
            )
        ]
        text = next((text for text in texts if len(text) <= width), speed)
        return Content.assemble((text[: len(speed)], "bold"), text[len(speed) :])


def _ratios(ratio: Ratio | None) -> tuple[str, str, str, str]:
    """From long to short; that there is no difference is never left out."""
    if ratio is None:
        return ("",) * 4
    long = f"  × {ratio_text(ratio)}"
    short = ", no difference" if ratio.verdict is Verdict.NO_DIFFERENCE else f"  × {ratio.value:.2f}"
    return long, long, short, short
