"""Times alternatives that take turns, so that a machine that becomes faster or slower meanwhile favours none."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def take_turns(
    lanes: Sequence[Callable[[], Sequence[float]]],
    *,
    seconds: float,
    rounds: int,
    progress: Callable[[float], None],
) -> NDArray[np.float64]:
    """What the lanes return, turn after turn: [lanes, turns, values].

    In a round each lane has two turns, A B C C B A. There is one round, and up to `rounds` while the next one is
    expected to end before `seconds` have passed. progress: gets the fraction that is done after every turn, from 0 to 1.
    """
    results: list[list[Sequence[float]]] = [[] for _ in lanes]
    order = [*range(len(lanes)), *reversed(range(len(lanes)))]
    start = time.perf_counter()
    for done in range(rounds):
        for turn, lane in enumerate(order, 1):
            results[lane].append(lanes[lane]())
            in_rounds = (done + turn / len(order)) / rounds
            progress(min(1.0, max(in_rounds, (time.perf_counter() - start) / seconds)))
        if (time.perf_counter() - start) * (done + 2) / (done + 1) > seconds:
            break
    progress(1.0)
    return np.array(results)
