"""Engines that compute nothing and take, on a clock of their own, exactly as long as they are told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.compare.control import Control
from app.compare.events import Event
from app.compare.lanes import (
    Answer,
    BatchTest,
    Lane,
    LaneMemory,
    Lineup,
    OnText,
    RequestStopped,
    Started,
    Stopped,
    Times,
)
from app.compare.logit_gap import GapCase
from app.compare.machine import LoadMeter
from app.compare.record import Busy, MachineFacts, ModelFacts, Record, Settings
from app.compare.runner import Comparison, Surroundings
from app.compare.scenarios import Plan
from engine.errors import OctavoError
from engine.messages import TextRequest, TokenPrompt


class FakeClock:
    """Seconds that pass only when somebody works; `slowness` is a state of the machine that drifts."""

    def __init__(self, seed: int = 0, drift: float = 0.0) -> None:
        self.now = 100.0
        self._random = np.random.default_rng(seed)
        self._drift = drift
        self.slowness = 1.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> float:
        """Let time go by, with the machine as slow as it is now; returns how much."""
        self.slowness = float(np.clip(self.slowness * np.exp(self._random.normal(0, self._drift)), 0.7, 1.4))
        self.now += seconds * self.slowness
        return seconds * self.slowness


@dataclass
class FakeVariant:
    """An engine with a contiguous cache, or (`keeps_all`) one that finds every prefix it has ever seen.

    fails_at: number of the request that fails, from 0. steps_back: whether the cache can drop its end. answers: what
    it says; by default the same as everyone. log: shared by all, who was asked what.
    """

    clock: FakeClock
    name: str = ""
    prefill: float = 1000.0
    decode: float = 100.0
    keeps_all: bool = False
    fails_at: int | None = None
    fails_to_start: bool = False
    steps_back: bool = True
    token: int = 7
    log: list[tuple[str, TextRequest]] = field(default_factory=list)
    lane: str = ""
    held: list[tuple[int, ...]] = field(default_factory=list)
    starts: int = 0
    is_open: bool = False
    n_asked: int = 0
    on_ask: Callable[[], object] = lambda: None

    def start(self, on_loading: Callable[[float], object]) -> Started:
        if self.fails_to_start:
            raise OctavoError("There is no room.")
        self.starts += 1
        self.is_open = True
        self.held.clear()
        on_loading(1.0)
        return Started("fake", 4096)

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        assert self.is_open
        self.log.append((f"{self.lane} {self.name}".strip(), request))
        self.on_ask()
        if stopped():
            raise RequestStopped
        self.n_asked += 1
        if self.fails_at is not None and self.n_asked > self.fails_at:
            raise OctavoError("The engine's process is gone.")
        prompt = tokens_of(request)
        reused = self._reuse(prompt)
        prefill = self.clock.work((len(prompt) - reused) / self.prefill)
        assert request.max_tokens is not None
        n_tokens = request.n * request.max_tokens
        decode = self.clock.work((n_tokens - 1) / self.decode) if n_tokens > 1 else 0.0
        answer = tuple([self.token] * request.max_tokens)
        self.held.append(prompt)
        on_text("seven")
        times = Times(prefill, prefill + decode)
        return Answer(
            token_ids=(answer,) * request.n,
            texts=(f"{self.lane} said {self.token}",) * request.n,
            generated_tokens=n_tokens,
            user=Times(times.first_s + 0.01, times.end_s + 0.01),
            engine=times,
            prefill_s=prefill,
            prompt_tokens=len(prompt),
            reused_tokens=reused,
            computed_tokens=len(prompt) - reused,
        )

    def memory(self) -> LaneMemory:
        return LaneMemory(75, 100, 200, 1000)

    def forget(self) -> None:
        self.start(lambda _: None)

    def quit_and_come_back(self) -> bool:
        self.forget()
        return False

    def close(self) -> None:
        self.is_open = False

    def _reuse(self, prompt: tuple[int, ...]) -> int:
        known = self.held if self.keeps_all else self.held[-1:]
        kept = max((_common(each, prompt) for each in known), default=0)
        return 0 if not self.steps_back and known and kept < len(known[-1]) else kept


@dataclass
class FakeBatchVariant:
    """Decodes batches at `speed` tokens per second, however many sequences there are."""

    clock: FakeClock
    name: str = ""
    speed: float = 100.0

    def start(self, on_loading: Callable[[float], object]) -> None:
        on_loading(1.0)

    def decode(self, test: BatchTest, _stopped: Stopped) -> float:
        return self.clock.work(test.n_sequences * test.n_tokens / self.speed)

    def close(self) -> None:
        pass


class FakeMeter(LoadMeter):
    """An idle machine."""

    def rest(self, _seconds: float = 1.0) -> None:
        pass

    def read(self) -> Busy:
        return Busy(0.0, 0.0, False)


def tokens_of(request: TextRequest) -> tuple[int, ...]:
    """A character of a message is a token."""
    if isinstance(request.prompt, TokenPrompt):
        return request.prompt.token_ids
    assert isinstance(request.prompt, tuple)
    return tuple(map(ord, "\n".join(message.content for message in request.prompt)))


def lane(name: str, *variants: FakeVariant, bytes_needed: int = 0) -> Lane[FakeVariant]:
    for variant in variants:
        variant.lane = name
    return Lane(name, variants, bytes_needed)


class Harness:
    """A comparison of fake lanes, its events and what was measured."""

    def __init__(
        self,
        clock: FakeClock,
        lanes: Sequence[Lane[FakeVariant]],
        plan: Plan,
        *,
        batch: Sequence[Lane[FakeBatchVariant]] = (),
        available: int = 10**9,
        on_event: Callable[[Event], object] = lambda _: None,
    ) -> None:
        self.events: list[Event] = []
        self.gap_cases: list[GapCase] = []
        self.control = Control(plan.repeat)
        self.record = new_record(tuple(each.name for each in lanes))
        lineup = Lineup(tuple(lanes), tuple(batch), tuple(lanes))

        def listen(event: Event) -> None:
            self.events.append(event)
            on_event(event)

        surroundings = Surroundings(self._measure_gaps, lambda: available, FakeMeter(), clock)
        self.comparison = Comparison(self.record, lineup, plan, 1000, self.control, listen, surroundings)

    def run(self) -> Record:
        self.comparison.run()
        return self.record

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def _measure_gaps(self, cases: Sequence[GapCase], _stopped: Stopped) -> list[float]:
        self.gap_cases += cases
        return [0.5 + i for i in range(len(cases))]


def new_record(lanes: tuple[str, ...]) -> Record:
    return Record(
        created="2026-01-02T03:04:05+00:00",
        machine=MachineFacts("A Processor", 2, 4, "CPU", "Linux 6.1 x86_64", "0.1.0", "0.3.36", "3.11.9"),
        model=ModelFacts("model.gguf", ("0" * 64,), 98_000_000, "llama", "Q4_1", 134_515_008),
        settings=Settings("quick", 2, 8192, None, "f16"),
        lanes=lanes,
    )


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the beginning that both have; a prompt's last token is never reused."""
    most = min(len(a), len(b) - 1)
    return next((i for i in range(most) if a[i] != b[i]), most)
