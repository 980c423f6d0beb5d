"""The thread that prepares and runs a comparison, beside the thread that draws.

Drawing takes the processor, and Python's lock, from whoever measures. So everything that costs more than a few letters
is done between two turns: figures are computed on the runner's thread, which then waits until they are drawn, and only
after that the next turn begins. While a turn runs, its text is collected here, and the screen fetches it five times a
second: ten times a second, engines were measurably slower where they have a thread on every processor.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.compare.control import Control
from app.compare.events import AnswerText, Ended, Event, LaneFailed, Loading, Measured
from app.compare.record import Record
from app.compare.runner import Comparison
from app.compare.scenarios import Plan
from app.compare.screen.snapshot import Snapshot, snapshot_of

_PATIENCE = 1.0
"""Seconds that the runner waits for the screen, which may be about to go."""


class Prepared(Protocol):
    """What of setup.Prepared the screen needs."""

    @property
    def record(self) -> Record:
        """Grows while it is measured."""

    @property
    def plan(self) -> Plan:
        """What will be measured."""

    def comparison(self, control: Control, on_event: Callable[[Event], object]) -> Comparison:
        """Ready to run, once."""


class _Left(Exception):
    """The user does not want it any more, and nothing was measured yet."""


@dataclass(frozen=True)
class Reading:
    """The fraction of the model's file that was read for its hash, from 0 to 1."""

    fraction: float


@dataclass(frozen=True)
class Ready:
    """Everything is known of what will be measured."""

    prepared: Prepared


@dataclass(frozen=True)
class Gone:
    """The thread has come to its end. error: what has ended it, if not all is well."""

    error: BaseException | None


@dataclass(frozen=True)
class News:
    """For the screen. snapshot: where something was measured. drawn: to be called when the screen shows it."""

    event: Event | Ready | Gone
    snapshot: Snapshot | None
    drawn: Callable[[], object]


class Backstage:
    """prepare: see setup.prepare. tell: receives News on this thread; False when nobody will ever draw them."""

    def __init__(self, prepare: Callable[[Callable[[float], object]], Prepared], tell: Callable[[News], bool]) -> None:
        self.prepared: Prepared | None = None
        self.control: Control | None = None
        self.error: BaseException | None = None
        self._prepare = prepare
        self._tell = tell
        self._pieces: deque[AnswerText] = deque()
        self._latest: Loading | Reading | None = None
        self._is_left = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="comparison", daemon=True)

    def start(self) -> None:
        """Once."""
        self._thread.start()

    def stop(self) -> None:
        """End it early, with what was measured so far; Gone is told soon after."""
        with self._lock:
            self._is_left = True
            if self.control is not None:
                self.control.stop()

    def wait(self, seconds: float) -> None:
        """Until it has come to its end, but not longer."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def take_pieces(self) -> list[AnswerText]:
        """What has come of answers since the last time."""
        return [self._pieces.popleft() for _ in range(len(self._pieces))]

    def take_latest(self) -> Loading | Reading | None:
        """How far the file that is being read is, where that has changed."""
        latest, self._latest = self._latest, None
        return latest

    def _run(self) -> None:
        try:
            self._compare()
        except _Left:
            pass
        except BaseException as error:
            self.error = error
        self._deliver(Gone(self.error))

    def _compare(self) -> None:
        prepared = self._prepare(self._on_reading)
        control = Control(prepared.plan.repeat)
        comparison = prepared.comparison(control, self._on_event)
        with self._lock:
            self.prepared, self.control = prepared, control
            if self._is_left:
                raise _Left
        self._deliver(Ready(prepared))
        comparison.run()

    def _on_reading(self, fraction: float) -> None:
        if self._is_left:
            raise _Left
        self._latest = Reading(fraction)

    def _on_event(self, event: Event) -> None:
        match event:
            case AnswerText():
                self._pieces.append(event)
            case Loading():
                self._latest = event
            case _:
                self._deliver(event)

    def _deliver(self, event: Event | Ready | Gone) -> None:
        """Come back when it is drawn."""
        snapshot = None
        if self.prepared is not None and isinstance(event, Measured | LaneFailed | Ended | Gone):
            snapshot = snapshot_of(self.prepared.record)
        drawn = threading.Event()
        if self._tell(News(event, snapshot, drawn.set)):
            drawn.wait(_PATIENCE)
