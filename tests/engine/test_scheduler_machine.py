"""Random requests, steps and cancellations on tiny pools: the read-back oracle must hold all along.

FakeEngine checks every plan, every event and every slot; the machines only stir.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.batch import Reading
from engine.compaction import CompactionPolicy
from engine.errors import MemoryLimitError, PromptError
from engine.prefix_cache import blake2b_16
from engine.sequence import Priority, Request
from tests.engine.fake_engine import FakeEngine, Guesses

MACHINE_SETTINGS = settings(
    derandomize=True,
    deadline=None,
    max_examples=300,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)


def four_bits(data: bytes) -> bytes:
    """A digest so short that different blocks collide all the time."""
    return bytes([hashlib.sha256(data).digest()[0] % 16])


REQUEST = st.builds(
    Request,
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple),
    max_tokens=st.one_of(st.none(), st.integers(1, 8)),
    stop_tokens=st.sampled_from([frozenset(), frozenset({2})]),
    priority=st.sampled_from(Priority),
    n=st.sampled_from([1, 1, 1, 2, 3]),
)


EAGER = CompactionPolicy(
    Reading(padding=1, merge_limit=1.0, max_spans=2),
    span_columns=1,
    slot_columns=0,
    move_columns=0,
    evicted_columns=0,
    interval=0,
)
"""Moves a sequence whenever that makes fewer runs of it."""

EAGER_BUT_SELDOM = EAGER._replace(reading=Reading(padding=1, merge_limit=1.0, max_spans=1), interval=3)


class SharingMachine(RuleBasedStateMachine):
    """Rules without preconditions: each does nothing where it has nothing to do, so that long mixes are common."""

    engine: FakeEngine

    @initialize(
        n_blocks=st.integers(1, 12),
        block_size=st.integers(1, 4),
        context=st.integers(8, 24),
        max_sequences=st.integers(1, 5),
        spare_budget=st.integers(0, 6),
        n_groups=st.sampled_from([1, 1, 2]),
        hash_function=st.sampled_from([blake2b_16, blake2b_16, four_bits]),
        compaction=st.sampled_from([None, EAGER, EAGER_BUT_SELDOM]),
        guesses=st.sampled_from([None, Guesses]),
    )
    def start(
        self, max_sequences: int, spare_budget: int, guesses: Callable[[], Guesses] | None, **options: Any
    ) -> None:
        self.engine = FakeEngine(
            max_sequences=max_sequences,
            token_budget=max_sequences + spare_budget,
            guesses=guesses() if guesses else None,
            **options,
        )

    @rule(request=REQUEST)
    def submit(self, request: Request) -> None:
        scheduler = self.engine.scheduler
        n_prompt = len(request.prompt)
        n_slots = scheduler.kv.n_blocks * scheduler.kv.block_size
        try:
            self.engine.submit(request)
        except PromptError:
            assert n_prompt >= scheduler.context
        except MemoryLimitError:
            assert n_slots < n_prompt < scheduler.context
        else:
            assert n_prompt < scheduler.context
            assert n_prompt <= n_slots

    @rule(request=REQUEST, which=st.integers(0, 1000), cut=st.integers(0, 1000), n_new=st.integers(0, 3))
    def submit_a_continuation(self, request: Request, which: int, cut: int, n_new: int) -> None:
        """A next turn, an edit or a regeneration: a prompt that begins like an earlier history."""
        if not self.engine.requests:
            return
        request_id = sorted(self.engine.requests)[which % len(self.engine.requests)]
        history = [*self.engine.requests[request_id].prompt, *self.engine.answers[request_id, 0].tokens]
        prompt = (*history[: 1 + cut % len(history)], *request.prompt[:n_new])
        self.submit(dataclasses.replace(request, prompt=prompt))

    @rule(n_steps=st.integers(1, 4))
    def step(self, n_steps: int) -> None:
        for _ in range(n_steps):
            self.engine.step()
            self.engine.check()

    def _recent_answer(self, which: int, index: int) -> tuple[int, int | None]:
        """One of the four latest requests: all its answers, or the one with this index."""
        request_id = sorted(self.engine.requests)[-1 - which % min(4, len(self.engine.requests))]
        return request_id, None if index < 0 else index

    @rule(which=st.integers(0, 3), index=st.integers(-1, 2))
    def cancel(self, which: int, index: int) -> None:
        if self.engine.requests:
            self.engine.cancel(*self._recent_answer(which, index))

    @rule(which=st.integers(0, 3), index=st.integers(-1, 2))
    def cancel_while_a_step_runs(self, which: int, index: int) -> None:
        if self.engine.requests:
            self.engine.step(cancel_before_complete=self._recent_answer(which, index))

    @rule()
    def run_until_idle(self) -> None:
        self.engine.finish()
        self.engine.check_idle()

    @invariant()
    def integrity(self) -> None:
        self.engine.check()

    def teardown(self) -> None:
        self.engine.finish()
        self.engine.check_idle()


TestSharing = SharingMachine.TestCase
TestSharing.settings = MACHINE_SETTINGS
