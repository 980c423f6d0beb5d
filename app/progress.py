"""Progress bars on standard error, drawn by rich; nothing is drawn where that is no terminal."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from engine.printable import one_line
from engine.units import format_bytes


def byte_progress() -> Progress:
    """Bars that count bytes, with rate and time left. Use as a context manager."""
    return _progress(DownloadColumn(binary_units=True), _RateColumn())


def step_progress() -> Progress:
    """Bars that count things, such as tensors, with time left. Use as a context manager."""
    return _progress(MofNCompleteColumn())


class _RateColumn(ProgressColumn):
    """Bytes a second, in the units of the other columns: rich's own column counts in thousands."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{format_bytes(round(speed))}/s" if speed else "", style="progress.data.speed")


def _progress(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True, highlight=False)
    hidden = sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb"
    description = TextColumn("{task.description}", markup=False)
    return Progress(
        description, BarColumn(), *columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden
    )


def label(text: str) -> str:
    """What a bar may say: one line, no control characters, short enough to leave room for the bar."""
    text = one_line(text)
    return text if len(text) <= 40 else text[:39] + "…"
