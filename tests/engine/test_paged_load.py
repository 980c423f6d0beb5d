"""The real paged engine under a mixed load in a pool that is far too small: nothing is lost, mixed up or left over."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.interface import Event
from engine.kv_pool import KvLayout
from engine.sequence import FinishReason, Priority, Request, SamplingParams, TokenEvent
from tests.engine.recording import RecordingEngine
from tests.reference import F16, LlamaDecode

CONTEXT = 96
N_BLOCKS = 11
"""Two sequences of the full context do not fit."""
N_ACTIONS = 250
SAME_SUM = 1e-3
"""Normalised mean square error of one row allowed where only the order of additions differs, in F16 for a part."""

Answer = tuple[int, int]
"""Request id and index."""


class Load:
    """Random requests of a few families that share their beginnings, random cancels, and what became of each."""

    def __init__(self, engine: RecordingEngine, seed: int) -> None:
        self.engine = engine
        self.random = random.Random(seed)
        self.requests: dict[int, Request] = {}
        self.finishes: Counter[Answer] = Counter()
        self.reasons: dict[Answer, FinishReason] = {}
        self.seen: dict[Answer, list[int]] = {}
        tokens = range(90)
        self._families = [self.random.choices(tokens, k=CONTEXT) for _ in range(3)]

    def act(self) -> None:
        action = self.random.random()
        if action < 0.25:
            self._submit()
        elif action < 0.35 and self.requests:
            request_id = self.random.choice(list(self.requests))
            self._take(self.engine.cancel(request_id, self.random.choice([None, 0, 1])))
        else:
            self._take(self.engine.step())

    def finish(self) -> None:
        while self.engine.has_work():
            self._take(self.engine.step())

    def _submit(self) -> None:
        draw = self.random
        n_shared, n_own = draw.choice([0, 15, 16, 17, 32, 50]), draw.choice([1, 2, 14, 40])
        request = Request(
            prompt=tuple(draw.choice(self._families)[:n_shared] + draw.choices(range(90), k=n_own)),
            sampling=SamplingParams(temperature=draw.choice([0, 1]), seed=draw.randrange(1000)),
            max_tokens=draw.choice([1, 2, 9, 20, None]),
            stop_tokens=frozenset(draw.choices(range(96), k=2)),
            priority=draw.choice(list(Priority)),
            n=draw.choice([1, 1, 2, 3]),
        )
        self.requests[self.engine.submit(request)] = request

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TokenEvent):
                answer = event.request_id, event.index
                assert not self.finishes[answer], "an event after the last one"
                if event.token_id is not None:
                    self.seen.setdefault(answer, []).append(event.token_id)
                if event.finish is not None:
                    self.finishes[answer] += 1
                    self.reasons[answer] = event.finish


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("seed", range(3))
def test_every_answer_is_that_of_a_cold_run(tiny_model: Callable[..., Path], layout: KvLayout, seed: int) -> None:
    path = tiny_model()
    engine = RecordingEngine(path, context=CONTEXT, layout=layout, n_blocks=N_BLOCKS, token_budget=40)
    scheduler = engine._scheduler
    load = Load(engine, seed)
    for _ in range(N_ACTIONS):
        load.act()
        scheduler.check_integrity()
    load.finish()
    scheduler.check_integrity()
    stats = engine.scheduler_stats()
    assert (stats.n_running, stats.n_waiting, stats.blocks_used) == (0, 0, 0)
    assert not engine._samplers
    # The load was what it says: memory ran out, answers were shared and cancelled.
    assert min(stats.preemptions, stats.evictions, stats.reused_tokens) > 0
    assert set(load.reasons.values()) == set(FinishReason)
    assert load.finishes == {(request_id, i): 1 for request_id, r in load.requests.items() for i in range(r.n)}

    with LlamaDecode(path, kv_type=F16, extra_bufts=True, n_ctx=CONTEXT) as reference:
        for (request_id, index), rows in engine.rows.items():
            request, reason = load.requests[request_id], load.reasons[request_id, index]
            answer = load.seen.get((request_id, index), [])
            assert np.isfinite(rows).all()
            assert len(rows) == len(answer) + (reason is FinishReason.STOP)  # whose token is not an event
            expected = reference.decode([*request.prompt, *answer[: len(rows) - 1]])[len(request.prompt) - 1 :]
            errors = np.mean((np.stack(rows) - expected) ** 2, axis=1) / np.mean(expected**2, axis=1)
            assert errors.max() < SAME_SUM
            if request.sampling.temperature == 0:
                choices = [int(row.argmax()) for row in rows]
                assert choices[: len(answer)] == answer
                assert reason is not FinishReason.STOP or choices[-1] in request.stop_tokens
            if reason is FinishReason.LENGTH:
                assert len(answer) == request.max_tokens or len(request.prompt) + len(answer) == CONTEXT
    engine.close()
