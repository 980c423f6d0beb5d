"""Fewer threads while other programs use the cores.

The threads of a graph wait for each other after every operation, so one that the system gives no core holds up all: on
two cores with one other busy program, a decode takes five times as long on two threads and less than twice as long on
one. What other programs do is not asked, which every system tells differently; it shows in the time of decodes.
"""

from __future__ import annotations

import statistics
from collections import deque

SLOW = 2.0
"""A decode that takes this many times the usual says that a core is taken."""

TRIAL = 4
"""Decodes on fewer threads before they are compared."""

LONGEST_WAIT = 64
"""Most decodes on fewer threads before all are tried again."""


class ThreadGovernor:
    """Chooses the number of threads of the next graph from the times of decodes, which all do about the same work.

    n_threads: for the next graph. All threads are tried again after 4 decodes on fewer, then after 8, 16 and so on.
    """

    def __init__(self, n_threads: int) -> None:
        """Use up to `n_threads`."""
        self.n_threads = self._all = n_threads
        self._usual: deque[float] = deque(maxlen=16)
        """Seconds of the latest decodes on all threads that were not slow."""
        self._fewer: deque[float] = deque(maxlen=TRIAL)
        """Seconds of the latest decodes on the present number of threads, if that is not all."""
        self._settled = n_threads
        """The number of threads before all were tried again."""
        self._wait = self._left = TRIAL

    def observe(self, seconds: float) -> None:
        """Take in the time of a decode that ran on `n_threads`."""
        if self.n_threads == self._all:
            self._observe_all(seconds)
        else:
            self._observe_fewer(seconds)

    def _observe_all(self, seconds: float) -> None:
        if self._fewer:  # all were tried again: are they any better?
            is_slow = seconds > statistics.median(self._fewer)
        else:
            is_slow = len(self._usual) == self._usual.maxlen and seconds > SLOW * statistics.median(self._usual)
        if not is_slow:
            if self._fewer:  # the cores are free again, or the work has grown: what was usual says nothing any more
                self._usual.clear()
            self._usual.append(seconds)
            self._fewer.clear()
            self._wait = TRIAL
        elif self._all > 1:
            self.n_threads = self._settled if self._fewer else self._all - 1
            self._left = self._wait
            self._fewer.clear()

    def _observe_fewer(self, seconds: float) -> None:
        self._fewer.append(seconds)
        self._left -= 1
        expected = statistics.median(self._usual) * self._all / self.n_threads
        if len(self._fewer) == TRIAL and self.n_threads > 1 and statistics.median(self._fewer) > SLOW * expected:
            self.n_threads -= 1  # more than one core is taken
            self._fewer.clear()
            self._left = self._wait
        elif self._left <= 0:
            self._settled = self.n_threads
            self.n_threads = self._all
            self._wait = min(2 * self._wait, LONGEST_WAIT)
