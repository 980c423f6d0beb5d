"""Measures prefill by chunk size, and decoding by number of threads, with a model's weights and a part of its layers.

That part is small, so that it takes little time, and large enough that weights come from memory as in the whole model:
decodes go through the first layers that fill any cache, and chunks through two of them at a time, in turn.

Other programs can only make a turn slower, and more so with many threads, which wait for each other: of all turns of a
setting the fastest counts. If they keep a core busy all the while, there is no undisturbed turn, and fewer threads are
faster as long as they run. Such a measurement, recognized by its many preemptions, says nothing about the threads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np

from engine.attention_choice import AttentionChoice
from engine.batch import Batch
from engine.config import KvType
from engine.devices import Device
from engine.forward import Forward
from engine.plan import ModelPlan
from engine.random_pool import lone_segment, random_pool
from engine.tuning import DEFAULT_CHUNK_TOKENS, Speed
from engine.turns import Effort, preemptions, take_turns
from engine.weights import Weights

CHUNKS = (128, 256, 512, 1024)
"""Sizes to choose from; a longer chunk would make others wait for long."""

_FEWEST_CHUNKS = CHUNKS.index(DEFAULT_CHUNK_TOKENS) + 1
"""Sizes to measure at least: without the default size it would not be known whether a smaller one is better."""

CHUNK_LAYERS = 2
"""Layers that a chunk goes through."""

_CACHE_BYTES = 64 * 2**20
"""More than the caches of most processors hold."""

_KNOWN = 256
"""Tokens before a measured decode."""

_STEPS = 4
"""Decodes in a turn. The first one does not count: OpenMP starts threads when their number changes."""


_MOST_PREEMPTIONS = 200
"""Per second of a measurement. Seen were up to 100 on an idle machine, 470 with a program that uses a third of a core,
and 4,400 with one that uses a whole one."""


class ForwardProbe:
    """Measures on the CPU. The weights are its caller's; its pool is its own."""

    def __init__(self, plan: ModelPlan, weights: Weights, n_weight_bytes: int, device: Device, kv_type: KvType) -> None:
        """n_weight_bytes: of the whole model. Raises MemoryLimitError."""
        n_layers = len(plan.layers)
        self.n_layers = min(n_layers, max(CHUNK_LAYERS, -(-_CACHE_BYTES * n_layers // n_weight_bytes)))
        """Layers that are used."""
        self._plan = plan
        self._weights = weights
        self._device = device
        self._pool = random_pool(plan.kv_groups[0], self.n_layers, max(CHUNKS), device, kv_type)

    def threads(
        self, candidates: Sequence[int], effort: Effort, progress: Callable[[float], None]
    ) -> tuple[Speed, ...]:
        """Speeds of decoding by number of threads; () if the effort does not suffice, or other programs are busy."""
        plan = _cut(self._plan, 0, self.n_layers)
        forwards = [self._forward(plan, n, 1, AttentionChoice()) for n in candidates]
        batch = self._batch(_KNOWN, 1, samples=True)

        def turn(forward: Forward) -> list[float]:
            return [_seconds(forward, batch) for _ in range(_STEPS)]

        try:
            turn(forwards[0])  # brings weights into memory
            if 2 * len(candidates) * sum(turn(forwards[0])) > effort.seconds:
                return ()
            lanes = [lambda forward=forward: turn(forward)[1:] for forward in forwards]
            start, n_preemptions = time.perf_counter(), preemptions()
            fastest = take_turns(lanes, effort, progress).min(axis=(1, 2))
            if preemptions() - n_preemptions > _MOST_PREEMPTIONS * (time.perf_counter() - start):
                return ()
        finally:
            for forward in forwards:
                forward.close()
        return tuple(Speed(n, 1 / seconds) for n, seconds in zip(candidates, fastest.tolist(), strict=True))

    def chunks(
        self, n_threads: int, choice: AttentionChoice, effort: Effort, progress: Callable[[float], None]
    ) -> tuple[Speed, ...]:
        """Speeds of prefill by chunk size, with as many of CHUNKS as the effort suffices for; () if for too few."""
        first_layers = range(0, max(1, self.n_layers - CHUNK_LAYERS + 1), CHUNK_LAYERS)
        plans = [_cut(self._plan, first, CHUNK_LAYERS) for first in first_layers]
        forwards = [self._forward(plan, n_threads, max(CHUNKS), choice) for plan in plans]
        parts = cycle(forwards)

        def compute(n_tokens: int, chunk: int) -> float:
            """Seconds for so many tokens; each chunk goes through the next layers."""
            batches = (self._batch(start, chunk, samples=False) for start in range(0, n_tokens, chunk))
            return sum(_seconds(next(parts), batch) for batch in batches)

        try:
            compute(CHUNKS[0], CHUNKS[0])  # makes room for intermediate results
            sizes = _affordable(compute(CHUNKS[0], CHUNKS[0]) / CHUNKS[0], effort.seconds)
            if not sizes:
                return ()
            lanes = [lambda size=size: [compute(max(sizes), size)] for size in sizes]
            fastest = take_turns(lanes, effort, progress).min(axis=(1, 2))
        finally:
            for forward in forwards:
                forward.close()
        return tuple(Speed(n, max(sizes) / seconds) for n, seconds in zip(sizes, fastest.tolist(), strict=True))

    def close(self) -> None:
        """Free the pool."""
        self._pool.close()

    def _forward(self, plan: ModelPlan, n_threads: int, max_tokens: int, choice: AttentionChoice) -> Forward:
        return Forward(
            plan,
            self._weights,
            self._pool,
            self._device,
            n_threads=n_threads,
            max_sequences=1,
            max_tokens=max_tokens,
            choice=choice,
        )

    def _batch(self, start: int, n_tokens: int, *, samples: bool) -> Batch:
        """`n_tokens` tokens from position `start` on, of the only sequence."""
        positions = np.arange(start, start + n_tokens, dtype=np.int32)
        return Batch(
            tokens=positions % self._plan.vocabulary,
            positions=positions,
            groups=((lone_segment(0, start, n_tokens),),),
            output_rows=(n_tokens - 1,) if samples else (),
        )


def _cut(plan: ModelPlan, first: int, n_layers: int) -> ModelPlan:
    """The model with the `n_layers` layers from `first` on; their K and V are those of layers 0, 1 … of the pool."""
    [group] = plan.kv_groups
    layers = plan.layers[first : first + n_layers]
    return replace(plan, layers=layers, kv_groups=(replace(group, layers=tuple(range(len(layers)))),))


def _affordable(seconds_per_token: float, seconds: float) -> tuple[int, ...]:
    """As many of CHUNKS, the smallest first, as can be measured with two turns each; () if too few for a choice."""
    for n in range(len(CHUNKS), _FEWEST_CHUNKS - 1, -1):
        if 2 * n * CHUNKS[n - 1] * seconds_per_token <= seconds:
            return CHUNKS[:n]
    return ()


def _seconds(forward: Forward, batch: Batch) -> float:
    start = time.perf_counter()
    forward.run(batch)
    return time.perf_counter() - start
