"""Runs a comparison: phase by phase, with all lanes loaded side by side where they fit in memory. It draws nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Generic, NamedTuple

from app.compare.control import Control, Skip, Stop
from app.compare.crew import Crew, Entrant, NobodyLeft, Stage
from app.compare.events import Ended, Event
from app.compare.lanes import BatchTest, Lane, Lineup, Stopped, V
from app.compare.logit_gap import GapCase
from app.compare.machine import LoadMeter
from app.compare.raw_phase import BatchPhase, RawPhase, rounds
from app.compare.record import Record
from app.compare.scenarios import Plan, RawTest
from app.compare.session_phase import SessionPhase

_DECODE_COST = 8
"""A decoded token takes as long as so many tokens of a prompt, roughly: for the time that is left."""

_SESSION_PROMPTS = 3000
"""Prompt tokens that a session computes, roughly."""

MeasureGaps = Callable[[Sequence[GapCase], Stopped], list[float] | None]
"""See logit_gap.measure_gaps."""


class Surroundings(NamedTuple):
    """What a comparison needs of the world. available: bytes of memory that are free now."""

    measure_gaps: MeasureGaps
    available: Callable[[], int]
    meter: LoadMeter
    clock: Callable[[], float] = time.monotonic


class _Scenario(NamedTuple, Generic[V]):
    """cost: in proportion to the time it takes."""

    cost: float
    run: Callable[[Crew[V]], None]


class Comparison:
    """Everything that a plan holds, measured with the lanes of a lineup."""

    def __init__(
        self,
        record: Record,
        lineup: Lineup,
        plan: Plan,
        vocabulary: int,
        control: Control,
        on_event: Callable[[Event], object],
        surroundings: Surroundings,
    ) -> None:
        """record: what is measured is added to it. vocabulary: number of token ids. on_event: see events.py."""
        self.record = record
        self._lineup = lineup
        self._plan = plan
        self._vocabulary = vocabulary
        self._control = control
        self._on_event = on_event
        self._surroundings = surroundings
        self._stage = Stage(record, control, on_event, surroundings.clock)
        self._spent = 0.0
        self._total = (
            _session_cost(plan)
            + sum(_raw_cost(test, plan.repeat) for test in plan.raw)
            + sum(_batch_cost(test, plan.repeat) for test in plan.batch)
        )

    def run(self) -> None:
        """To the end, or until the user stops it; the last event is Ended."""
        try:
            self._surroundings.meter.rest()
            self._play_session()
            self._run_raw()
            self._run_batch()
            self.record.is_complete = True
        except Stop:
            self.record.notes.append("It was stopped before its end: what is missing was not measured.")
        self.record.busy = self._surroundings.meter.read()
        self._on_event(Ended(self.record))

    def _play_session(self) -> None:
        if self._plan.session is None:
            return
        phase = SessionPhase(self._stage, self._plan.session)
        self._run_phase("session", self._lineup.session, [_Scenario(_session_cost(self._plan), phase.run)])
        self._fill_in_gaps(phase.gap_cases)

    def _run_raw(self) -> None:
        if not self._plan.raw:
            return
        phase = RawPhase(self._stage, self._vocabulary, max(test.depth for test in self._plan.raw))
        tests = [_Scenario(_raw_cost(test, self._plan.repeat), partial(phase.run, test)) for test in self._plan.raw]
        self._run_phase("raw", self._lineup.raw, [_Scenario(0, phase.warm_up), *tests])

    def _run_batch(self) -> None:
        if not self._plan.batch:
            return
        phase = BatchPhase(self._stage)
        tests = [_Scenario(_batch_cost(test, self._plan.repeat), partial(phase.run, test)) for test in self._plan.batch]
        self._run_phase("batch", self._lineup.batch, [_Scenario(0, phase.warm_up), *tests])

    def _run_phase(self, name: str, lanes: Sequence[Lane[V]], scenarios: Sequence[_Scenario[V]]) -> None:
        entrants = [Entrant(lane.name, variant) for lane in lanes for variant in lane.variants]
        crews = [entrants]
        if sum(lane.bytes_needed * len(lane.variants) for lane in lanes) > self._surroundings.available():
            crews = [[entrant] for entrant in entrants]
            self.record.notes.append(
                f"The engines of the phase '{name}' do not fit in the free memory together, so they ran one after the "
                "other: how the machine changed meanwhile is part of the ratios."
            )
        for members in crews:
            with Crew(name, self._stage, members) as crew:
                for scenario in scenarios:
                    self._run_scenario(scenario.cost * len(members) / len(entrants), partial(scenario.run, crew))

    def _run_scenario(self, cost: float, run: Callable[[], None]) -> None:
        self._stage.begin_scenario(self._spent / self._total, cost / self._total)
        with contextlib.suppress(Skip, NobodyLeft):
            run()
        self._spent += cost

    def _fill_in_gaps(self, cases: Sequence[GapCase | None]) -> None:
        """cases: for each difference."""
        known = [case for case in cases if case is not None]
        gaps = self._surroundings.measure_gaps(known, self._control.wanted) if known else None
        if gaps is None:
            return
        by_case = iter(gaps)
        self.record.differences[:] = [
            replace(difference, gap=next(by_case)) if case else difference
            for difference, case in zip(self.record.differences, cases, strict=True)
        ]


def _session_cost(plan: Plan) -> float:
    if plan.session is None:
        return 0
    answers = sum(step.n for step in plan.session.steps) * plan.session.answer_tokens
    return plan.repeat * (_SESSION_PROMPTS + _DECODE_COST * answers)


def _raw_cost(test: RawTest, repeat: int) -> float:
    return rounds(repeat) * test.n_tokens * (_DECODE_COST if test.decodes else 1)


def _batch_cost(test: BatchTest, repeat: int) -> float:
    return rounds(repeat) * test.n_sequences * (test.depth + _DECODE_COST // 2 * test.n_tokens)
