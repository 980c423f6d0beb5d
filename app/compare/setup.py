"""From what the user asked for to a comparison that is ready to run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.compare.control import Control
from app.compare.endpoint import Endpoint
from app.compare.events import Event
from app.compare.lanes import Lineup
from app.compare.lineup import choose_context, make_lineup
from app.compare.logit_gap import measure_gaps
from app.compare.machine import LoadMeter, machine_facts, model_facts
from app.compare.record import Record, Settings
from app.compare.runner import Comparison, Surroundings
from app.compare.scenarios import Part, Plan, make_plan
from engine.config import EngineConfig, EngineKind
from engine.errors import OctavoError
from engine.memory import available_memory
from models.inspect import inspect_model


@dataclass(frozen=True)
class Wish:
    """What the user asked for. config: context and threads may be None. lanes: names, from lineup.LANES."""

    path: Path
    config: EngineConfig
    lanes: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    repeat: int
    full: bool = False
    only: Part | None = None


@dataclass(frozen=True)
class Prepared:
    """A comparison that waits for someone to watch it. plan.repeat is what a Control begins with."""

    wish: Wish
    record: Record
    lineup: Lineup
    plan: Plan
    vocabulary: int

    def comparison(self, control: Control, on_event: Callable[[Event], object]) -> Comparison:
        """Ready to run, once."""
        reference = replace(self.wish.config, kind=EngineKind.CONTIGUOUS, flash=True)
        gaps = partial(measure_gaps, self.wish.path, reference)
        surroundings = Surroundings(gaps, available_memory, LoadMeter())
        return Comparison(self.record, self.lineup, self.plan, self.vocabulary, control, on_event, surroundings)


def prepare(wish: Wish, on_progress: Callable[[float], object]) -> Prepared:
    """Look at the machine and the model; its file is read for its hash, of which `on_progress` receives the fraction.

    Raises ModelFileError, DeviceError, or OctavoError when nothing of what was asked for can be measured.
    """
    summary = inspect_model((wish.path,))
    context = choose_context(wish.config.context, summary)
    wish = replace(wish, config=replace(wish.config, context=context))
    plan = make_plan(context, wish.repeat, full=wish.full, only=wish.only)
    lineup = make_lineup(wish.lanes, wish.endpoints, wish.path, wish.config, summary, plan.batch)
    plan = replace(plan, raw=plan.raw if lineup.raw else (), batch=plan.batch if lineup.batch else ())
    if not (plan.session or plan.raw or plan.batch):
        raise OctavoError(" ".join(plan.notes) or "None of these lanes has anything to measure: choose others.")
    settings = Settings(
        mode="full" if wish.full else "quick",
        repeat=wish.repeat,
        context=context,
        threads=wish.config.threads,
        kv_type=wish.config.kv_type,
    )
    record = Record(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine_facts(wish.config.device),
        model=model_facts(summary, on_progress),
        settings=settings,
        lanes=(*wish.lanes, *(endpoint.server for endpoint in wish.endpoints)),
        notes=list(plan.notes),
    )
    return Prepared(wish, record, lineup, plan, summary.vocabulary or 1)
