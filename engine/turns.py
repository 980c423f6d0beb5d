"""Times alternatives that take turns, so that a machine that becomes faster or slower meanwhile favours none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

if sys.platform != "win32":
    import resource


class Effort(NamedTuple):
    """How long a measurement may take: at most so many seconds, and so many rounds."""

    seconds: float
    rounds: int


def preemptions() -> int:
    """How often other programs took a processor from a thread of this process so far; 0 where nobody counts."""
    if sys.platform == "win32":
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def take_turns(
    lanes: Sequence[Callable[[], Sequence[float]]], effort: Effort, progress: Callable[[float], None]
) -> NDArray[np.float64]:
    """What the lanes return, turn after turn: [lanes, turns, values].

    In a round each lane has two turns, A B C C B A. There is one round in any case, and another one as long as it is
    expected to be within the effort. progress: gets the fraction that is done, from 0 to 1.
    """
    results: list[list[Sequence[float]]] = [[] for _ in lanes]
    order = [*range(len(lanes)), *reversed(range(len(lanes)))]
    start = time.perf_counter()
    for done in range(effort.rounds):
        for turn, lane in enumerate(order, 1):
            results[lane].append(lanes[lane]())
            in_rounds = (done + turn / len(order)) / effort.rounds
            progress(min(1.0, max(in_rounds, (time.perf_counter() - start) / effort.seconds)))
        if (time.perf_counter() - start) * (done + 2) / (done + 1) > effort.seconds:
            break
    progress(1.0)
    return np.array(results)
