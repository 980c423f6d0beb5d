"""The screen with the real runner and engines that say what a test wants, when it wants it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from textual.pilot import Pilot

from app.compare.control import Control
from app.compare.events import Event
from app.compare.lanes import Answer, BatchVariant, Lane, LaneMemory, Lineup, OnText, RequestStopped, Stopped, Variant
from app.compare.record import Record
from app.compare.runner import Comparison, Surroundings
from app.compare.scenarios import SESSION, Plan, RawTest, Session
from app.compare.screen.app import CompareApp
from app.compare.screen.backstage import Prepared
from app.compare.screen.lane_pane import LanePane
from engine.messages import TextRequest
from tests.app.compare.example_record import CONTIGUOUS_MEMORY, PAGED_MEMORY
from tests.app.compare.fake_lane import FakeClock, FakeMeter, FakeVariant, lane, new_record

PLAYED = Plan(Session(SESSION, answer_tokens=8), (), (), repeat=2)
ONCE = replace(PLAYED, repeat=1)
SHORT = Plan(Session(SESSION[:4], answer_tokens=8), (), (), repeat=1)
RAW = Plan(None, (RawTest(512, 0, decodes=False), RawTest(64, 512, decodes=True)), (), repeat=1)


@dataclass
class Actor(FakeVariant):
    """Says `text`; holds at its request of number `hold_at`, from 0 (a warm-up), when that is said, until `go`."""

    text: str = ""
    hold_at: int | None = None
    go: threading.Event = field(default_factory=threading.Event)
    kv: LaneMemory = CONTIGUOUS_MEMORY

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        on_text(self.text)
        if self.n_asked == self.hold_at:
            while not self.go.wait(0.002):
                if stopped():
                    self.hold_at = None
                    raise RequestStopped
        return super().ask(request, lambda _: None, stopped)

    def memory(self) -> LaneMemory:
        return self.kv


class StagedComparison:
    """What setup.prepare gives, of these lanes."""

    def __init__(
        self, lanes: Sequence[Lane[Any]], plan: Plan, clock: FakeClock, batch: Sequence[Lane[BatchVariant]] = ()
    ) -> None:
        self.record: Record = new_record(tuple(each.name for each in lanes))
        self.plan = plan
        self._lineup = Lineup(tuple(lanes), tuple(batch), tuple(lanes))
        self._clock = clock

    def comparison(self, control: Control, on_event: Callable[[Event], object]) -> Comparison:
        surroundings = Surroundings(lambda cases, _: [0.5] * len(cases), lambda: 10**12, FakeMeter(), self._clock)
        return Comparison(self.record, self._lineup, self.plan, 1000, control, on_event, surroundings)


@dataclass
class Staged:
    """A running app."""

    app: CompareApp
    pilot: Pilot[None]
    staged: Prepared

    @property
    def record(self) -> Record:
        return self.staged.record

    async def until(self, condition: Callable[[], object], patience_s: float = 20) -> None:
        """Wait for something that comes from the runner's thread."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "\n".join(("it never came:", *self.lines()))
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    async def until_shown(self, *texts: str) -> None:
        await self.until(lambda: all(map(self.shows, texts)))

    def lines(self) -> list[str]:
        """The screen as text, without spaces at the ends of its lines."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    def shows(self, text: str) -> bool:
        """Whether a text can be read on one line of the screen."""
        return any(text in line for line in self.lines())

    def pane(self, name: str) -> LanePane:
        return next(pane for pane in self.app._main.query(LanePane) if pane.lane == name)

    def pane_lines(self, name: str) -> list[str]:
        """The lines of the terminal that a lane has."""
        if not self.app._main.query(LanePane):
            return []
        region = self.pane(name).region
        strips = self.app.screen._compositor.render_strips()[region.y : region.bottom]
        return [strip.crop(region.x, region.right).text.rstrip() for strip in strips]

    def pane_shows(self, name: str, text: str) -> bool:
        return any(text in line for line in self.pane_lines(name))


def two_lanes(clock: FakeClock) -> tuple[Actor, Actor]:
    """One that computes again what it has dropped, and one that keeps all and is somewhat faster."""
    base = Actor(clock, text="An answer of the first lane.")
    return base, Actor(clock, keeps_all=True, decode=125.0, text="An answer of the second lane.", kv=PAGED_MEMORY)


def stage(
    flow: Callable[[Staged], Awaitable[Any]],
    variants: Sequence[Variant],
    clock: FakeClock,
    *,
    plan: Plan = SHORT,
    size: tuple[int, int] = (120, 36),
) -> tuple[int, Record]:
    """Run the app and let `flow` use it; returns the exit code, and what was measured. Lanes are A, B …"""
    lanes = [lane(name, variant) for name, variant in zip("ABCD", variants, strict=False)]  # type: ignore[arg-type]
    staged = StagedComparison(lanes, plan, clock)

    async def run() -> int:
        app = CompareApp(lambda _: staged, "model.gguf")
        try:
            async with app.run_test(size=size) as pilot:
                await flow(Staged(app, pilot, staged))
        finally:
            app.backstage.stop()
            app.backstage.wait(10)
        assert app.backstage.error is None
        return app.return_code or 0

    return asyncio.run(run()), staged.record
