"""The inputs of the packed composition, which are updated in place, against ones filled from nothing.

Logits would hide one wrongly visible key on a tiny model; the masks and slots are compared exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from engine import step_batch
from engine.attention_inputs import SharedPart, fill_mask, slots_of
from engine.batch import FOREIGN, Segment
from engine.packed_attention import PackedAttention
from tests.engine.recording import RecordingEngine


def shared_positions(segment: Segment, part: SharedPart) -> np.ndarray:
    """The position of each column that a segment of a shared part reads."""
    assert segment.shared is not None
    columns = np.full(part.n_columns, FOREIGN, np.int32)
    columns[: part.n_prefix] = range(segment.shared.n_positions)
    own = segment.keys.positions
    columns[part.n_prefix : part.n_prefix + len(own)] = own
    return columns


class Checks(NamedTuple):
    """The number of sequences of each step, and of each prefix that was read together."""

    steps: list[int]
    shared: list[int]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Compares every input of every step with its definition; counts what it sees.

    Every prefix that is shared at all is read together.
    """
    seen = Checks([], [])
    monkeypatch.setattr(step_batch, "SHARED_COLUMNS", 1)
    fill = PackedAttention.fill

    def checked(self: PackedAttention, segments: Sequence[Segment]) -> None:
        fill(self, segments)
        slots = slots_of(segments)
        assert np.array_equal(self._slots.array, slots)
        if self._elements is not None:
            expected = slots[self._scattered][:, None] + self._channel_offsets
            assert np.array_equal(self._elements.array, expected.reshape(-1))
        for part in self._parts:
            fresh = np.empty_like(part.mask.array)
            if isinstance(part, SharedPart):
                for i, index in enumerate(part.segments):
                    fresh[i :: len(part.segments)] = np.where(
                        shared_positions(segments[index], part) <= segments[index].start, 0, -np.inf
                    )
                seen.shared.append(len(part.segments))
            else:
                fill_mask(fresh, segments[part.segment], part.first)
            assert np.array_equal(part.mask.array, fresh)
        seen.steps.append(len(segments))

    monkeypatch.setattr(PackedAttention, "fill", checked)
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_inputs_are_right_whatever_came_before(tiny_model: Callable[..., Path], checks: Checks, seed: int) -> None:
    """Sequences of all lengths start, share prefixes, end and are cancelled over a small, fragmented pool."""
    chance = random.Random(seed)
    paged = RecordingEngine(tiny_model(context=512), n_blocks=40, token_budget=96, context=300)
    prefix = [chance.randrange(90) for _ in range(100)]
    requests = []
    for _ in range(250):
        if chance.random() < 0.15:
            shared = prefix[: chance.choice([0, 16, 50, 100])]
            own = [chance.randrange(90) for _ in range(chance.choice([1, 7, 20, 90]))]
            requests.append(
                paged.follow(shared + own, [chance.randrange(90) for _ in range(60)], n=chance.choice([1, 1, 3]))
            )
        if requests and chance.random() < 0.05:
            paged.cancel(chance.choice(requests))
        paged.step()
    paged.run()
    paged._scheduler.check_integrity()
    paged.close()
    assert max(checks.steps) > 3
    assert max(checks.shared) > 2


def test_another_sequence_between_them_keeps_none_from_sharing(tiny_model: Callable[..., Path], checks: Checks) -> None:
    path = tiny_model(context=512)
    prefix = [(7 * i) % 90 for i in range(64)]
    prompts = [[*prefix, 1], [(5 * i + 3) % 90 for i in range(70)], [*prefix, 2]]
    together = RecordingEngine(path)
    requests = [together.follow(prompt, [3, 4, 5, 6, 7, 8]) for prompt in prompts]
    together.run()
    assert checks.shared
    assert set(checks.shared) == {2}
    for prompt, request in zip(prompts, requests, strict=True):
        alone = RecordingEngine(path)
        expected = alone.follow(prompt, [3, 4, 5, 6, 7, 8])
        alone.run()
        np.testing.assert_allclose(together.logits(request), alone.logits(expected), atol=0.02)
        alone.close()
    together.close()


def test_many_scattered_sequences_fit_the_graph(tiny_model: Callable[..., Path], checks: Checks) -> None:
    """Sixteen sequences over every second block: without a limit, each would be read in some twenty spans."""
    paged = RecordingEngine(tiny_model(context=512, layers=8), n_blocks=700, context=400)
    allocator = paged._scheduler.kv.groups[0]
    blocks = allocator.allocate(700)
    for block in blocks[::2]:
        allocator.release(block)
    for number in range(16):
        paged.follow([(3 * i + number) % 90 for i in range(300)], [1] * 30)
    paged.run()
    paged.close()
    assert max(checks.steps) == 16
