"""Variants that are loaded together and take turns: who is next, who has failed, and who has to be closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from app.compare.control import Control
from app.compare.events import Event, LaneFailed, Loading, Turn
from app.compare.lanes import RequestStopped, V
from app.compare.record import LaneError, LaneFacts, Record
from engine.errors import OctavoError

T = TypeVar("T")


class NobodyLeft(Exception):
    """Every variant of a phase has failed."""


class Unmeasurable(OctavoError):
    """A variant cannot do one test, and is fit for the others."""


@dataclass(frozen=True, eq=False)
class Entrant(Generic[V]):
    """A variant and the name of its lane."""

    lane: str
    variant: V


class Stage:
    """What all phases of a comparison share: its record, the user's control, its listener and its progress."""

    def __init__(
        self,
        record: Record,
        control: Control,
        on_event: Callable[[Event], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.record = record
        self.control = control
        self.on_event = on_event
        self._clock = clock
        self._start = clock()
        self._scenario = (0.0, 0.0)
        self._done = 0.0

    def begin_scenario(self, start: float, part: float) -> None:
        """The scenario that comes is the `part` of all work that begins at `start`, both from 0 to 1."""
        self._scenario = start, part
        self._done = start

    def advance(self, fraction: float) -> None:
        """So much of the scenario is done, from 0 to 1."""
        start, part = self._scenario
        self._done = start + part * min(1.0, fraction)

    def announce(self, phase: str, test: str, entrant: Entrant[V], number: int) -> None:
        """Tell whose turn it is."""
        left = (self._clock() - self._start) * (1 - self._done) / self._done if self._done else None
        self.on_event(Turn(phase, test, entrant.lane, entrant.variant.name, number, self._done, left))


class Crew(Generic[V]):
    """The entrants of a phase. Use as a context manager: it loads them all, and closes them."""

    def __init__(self, phase: str, stage: Stage, entrants: Sequence[Entrant[V]]) -> None:
        self.phase = phase
        self._stage = stage
        self._all: tuple[Entrant[V], ...] = tuple(entrants)
        self._fit: list[Entrant[V]] = []

    def __enter__(self) -> Crew[V]:
        try:
            for entrant in self._all:
                self._fit.append(entrant)
                self.reload(entrant, "", partial(self._load, entrant))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everyone, also those that were never loaded."""
        for entrant in self._all:
            entrant.variant.close()

    @property
    def fit(self) -> tuple[Entrant[V], ...]:
        """Who has not failed, in the order of the lineup."""
        return tuple(self._fit)

    def in_turn(self, number: int) -> tuple[Entrant[V], ...]:
        """The same, in the order of a round: A B in even ones, B A in odd ones. Raises NobodyLeft."""
        if not self._fit:
            raise NobodyLeft
        return self.fit if number % 2 == 0 else self.fit[::-1]

    def attempt(self, entrant: Entrant[V], test: str, work: Callable[[], T]) -> T | None:
        """The result of `work`; None when it failed, which the record tells and the others do not feel.

        Raises Stop or Skip.
        """
        control = self._stage.control
        try:
            return work()
        except RequestStopped:
            control.check()
            return None
        except OctavoError as error:
            if control.wanted():
                control.check()
            self._note(entrant, test, error)
            return None

    def reload(self, entrant: Entrant[V], test: str, work: Callable[[], T]) -> T | None:
        """`attempt` of work that loads a model, and may be stopped meanwhile."""

        def closing() -> T:
            with self._stage.control.closing(entrant.variant.close):
                return work()

        return self.attempt(entrant, test, closing)

    def rest(self, entrant: Entrant[V]) -> None:
        """Let an entrant go that has been measured enough."""
        self._fit.remove(entrant)
        entrant.variant.close()

    def _note(self, entrant: Entrant[V], test: str, error: OctavoError) -> None:
        noted = LaneError(self.phase, entrant.lane, entrant.variant.name, test, str(error))
        self._stage.record.errors.append(noted)
        if not isinstance(error, Unmeasurable) and entrant in self._fit:
            self.rest(entrant)
        self._stage.on_event(LaneFailed(noted))

    def _load(self, entrant: Entrant[V]) -> None:
        lane, variant = entrant.lane, entrant.variant

        def on_loading(fraction: float) -> None:
            self._stage.on_event(Loading(lane, variant.name, fraction))

        started = variant.start(on_loading)
        if started is not None:
            facts = LaneFacts(self.phase, lane, variant.name, *started)
            self._stage.record.variants.append(facts)


def slower_variants(seconds: Mapping[Entrant[V], float]) -> set[Entrant[V]]:
    """Those that took longer than another variant of the same lane for the same work."""
    least: dict[str, float] = {}
    for entrant, took in seconds.items():
        least[entrant.lane] = min(took, least.get(entrant.lane, took))
    return {entrant for entrant, took in seconds.items() if took > least[entrant.lane]}
