"""The inputs of the packed composition, which are updated in place, against ones filled from nothing.

Logits would hide one wrongly visible key on a tiny model; the masks and slots are compared exactly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from engine.attention_inputs import fill_mask, slots_of
from engine.batch import Segment
from engine.packed_attention import PackedAttention
from tests.engine.recording import RecordingEngine


@pytest.fixture
def checked_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compares every input of every step with its definition; holds the number of sequences of each step."""
    steps: list[int] = []
    fill = PackedAttention.fill

    def checked(self: PackedAttention, segments: Sequence[Segment]) -> None:
        fill(self, segments)
        slots = slots_of(segments)
        assert np.array_equal(self._slots.array, slots)
        if self._elements is not None:
            expected = slots[self._scattered][:, None] + self._channel_offsets
            assert np.array_equal(self._elements.array, expected.reshape(-1))
        for segment, part in zip(segments, self._parts, strict=True):
            fresh = np.empty_like(part.mask.array)
            fill_mask(fresh, segment)
            assert np.array_equal(part.mask.array, fresh)
        steps.append(len(segments))

    monkeypatch.setattr(PackedAttention, "fill", checked)
    return steps


@pytest.mark.parametrize("seed", range(4))
def test_inputs_are_right_whatever_came_before(
    tiny_model: Callable[..., Path], checked_steps: list[int], seed: int
) -> None:
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
    assert max(checked_steps) > 3


def test_many_scattered_sequences_fit_the_graph(tiny_model: Callable[..., Path], checked_steps: list[int]) -> None:
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
    assert max(checked_steps) == 16
