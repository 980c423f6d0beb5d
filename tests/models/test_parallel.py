"""Several things at once."""

from __future__ import annotations

import threading

import pytest

from models.parallel import in_parallel


def test_results_come_in_the_order_of_the_items() -> None:
    assert in_parallel(lambda number: number * number, list(range(100))) == [number * number for number in range(100)]
    assert in_parallel(str, []) == []


def test_eight_at_once() -> None:
    """None of the first eight ends before all of them have begun."""
    barrier = threading.Barrier(8, timeout=30)
    assert in_parallel(lambda _: barrier.wait() < 8, list(range(16))) == [True] * 16


def test_what_is_raised_is_raised_here() -> None:
    def work(number: int) -> int:
        if number == 5:
            raise LookupError(number)
        return number

    with pytest.raises(LookupError, match="5"):
        in_parallel(work, list(range(50)))
