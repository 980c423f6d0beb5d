"""A step that is stopped leaves no trace: what follows is what would have come without it."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.interface import Engine, Event
from engine.paged import PagedEngine
from engine.sequence import FinishReason, Request, SamplingParams, TokenEvent

GREEDY = SamplingParams(temperature=0)
REPEATED = (5, 6, 7, 8, 9, 10, 11, 12) * 6
"""A prompt of which prompt lookup makes drafts."""


def open_engine(path: Path, kind: str) -> Engine:
    config = EngineConfig(context=256, threads=1, device="CPU")
    if kind == "contiguous":
        return ContiguousEngine(str(path), config, lambda _: None)
    return PagedEngine(str(path), config, lambda _: None, token_budget=20)


def answers(engine: Engine, *, interrupted: float) -> tuple[dict[tuple[int, int], list[int]], int]:
    """Tokens by request and index, and how many steps produced nothing; a fraction of the steps is interrupted."""
    dice = random.Random(3)
    for prompt, n in ((range(40), 1), (REPEATED, 1), (range(20, 50), 3), ((3, 4), 1)):
        engine.submit(Request(tuple(prompt), GREEDY, max_tokens=24, n=n))
    tokens: dict[tuple[int, int], list[int]] = {}
    n_empty = 0
    while engine.has_work():
        if dice.random() < interrupted:
            engine.interrupt()
        events = engine.step()
        n_empty += not events
        for event in events:
            if isinstance(event, TokenEvent) and event.token_id is not None:
                tokens.setdefault((event.request_id, event.index), []).append(event.token_id)
        if isinstance(engine, PagedEngine):
            engine._scheduler.check_integrity()
    return tokens, n_empty


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_interrupted_steps_change_no_answer(tiny_model: Callable[..., Path], kind: str) -> None:
    path = tiny_model()
    engine = open_engine(path, kind)
    undisturbed, n_empty = answers(engine, interrupted=0)
    engine.close()
    assert n_empty == 0
    engine = open_engine(path, kind)
    disturbed, n_empty = answers(engine, interrupted=0.4)
    engine.close()
    assert n_empty > 10
    assert disturbed == undisturbed


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_a_long_chunk_stops_in_the_middle(starter_path: Path, kind: str) -> None:
    config = EngineConfig(context=4096, threads=1, device="CPU")
    engine: Engine
    if kind == "paged":
        engine = PagedEngine(str(starter_path), config, lambda _: None, token_budget=2048)
    else:
        engine = ContiguousEngine(str(starter_path), config, lambda _: None)
    request_id = engine.submit(Request(tuple(i * 7 % 40_000 for i in range(4000)), GREEDY, max_tokens=2))
    running = threading.Event()
    events: list[list[Event]] = []

    def steps() -> None:
        running.set()
        for _ in range(10):
            events.append(engine.step())
            if not events[-1]:
                return

    thread = threading.Thread(target=steps)
    thread.start()
    running.wait()
    engine.interrupt()
    thread.join()
    assert events[-1] == []
    [end] = engine.cancel(request_id)
    assert isinstance(end, TokenEvent)
    assert end.finish is FinishReason.CANCELLED
    engine.close()
