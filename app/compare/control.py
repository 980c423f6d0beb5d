"""The user's hands on a comparison that runs: pause, skip, stop, and how often it repeats."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


class Stop(Exception):
    """The user wants to end the comparison, with what was measured so far."""


class Skip(Exception):
    """The user wants to go on with the next scenario."""


class Control:
    """Any thread may call any method; the runner's thread calls `check`, `wanted` and `closing`.

    repeat: how often each scenario is repeated; it may be changed while it runs.
    """

    def __init__(self, repeat: int) -> None:
        self.repeat = repeat
        self._lock = threading.RLock()
        self._go = threading.Event()
        self._go.set()
        self._stopped = self._skipped = False
        self._close: Callable[[], object] | None = None

    @property
    def paused(self) -> bool:
        """Whether nothing new begins until `resume`."""
        return not self._go.is_set()

    def pause(self) -> None:
        """Let what runs come to its end, and begin nothing after it."""
        self._go.clear()

    def resume(self) -> None:
        """Go on after a pause."""
        self._go.set()

    def skip(self) -> None:
        """End the scenario that runs; what it has measured so far is kept."""
        self._skipped = True
        self._go.set()

    def stop(self) -> None:
        """End everything at once, also a model that is being loaded."""
        with self._lock:
            self._stopped = True
            self._go.set()
            if self._close is not None:
                self._close()

    def wanted(self) -> bool:
        """Whether the request that runs is to end early."""
        return self._stopped or self._skipped

    def check(self) -> None:
        """Wait while it is paused. Raises Stop, or Skip once."""
        self._go.wait()
        if self._stopped:
            raise Stop
        if self._skipped:
            self._skipped = False
            raise Skip

    @contextlib.contextmanager
    def closing(self, close: Callable[[], object]) -> Iterator[None]:
        """In the block, `stop` calls `close`, which makes what runs there fail. Raises Stop."""
        with self._lock:
            if self._stopped:
                raise Stop
            self._close = close
        try:
            yield
        finally:
            with self._lock:
                self._close = None
