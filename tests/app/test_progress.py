"""Progress bars."""

from __future__ import annotations

import time

from rich.progress import ProgressColumn, Task, TaskID

from app.progress import byte_progress, label


def test_the_rate_has_the_units_of_the_sizes() -> None:
    rate = byte_progress().columns[3]
    assert isinstance(rate, ProgressColumn)
    assert str(rate.render(_task(20 * 2**20))) == "20.0 MiB/s"
    assert str(rate.render(_task(None))) == ""


def _task(speed: float | None) -> Task:
    task = Task(TaskID(0), "", total=1, completed=0, _get_time=time.monotonic)
    task.finished_speed = speed
    return task


def test_labels() -> None:
    assert label("a\x1b[2J\nb") == "a␛[2J␊b"
    assert label("x" * 40) == "x" * 40
    assert label("x" * 41) == "x" * 39 + "…"
