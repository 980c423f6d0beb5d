"""Extents of free blocks, against a plain set."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.free_space import Extent, FreeSpace


def extents_of(free: set[int]) -> list[Extent]:
    starts = sorted(block for block in free if block - 1 not in free)
    ends = sorted(block + 1 for block in free if block + 1 not in free)
    return [Extent(start, end - start) for start, end in zip(starts, ends, strict=True)]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(n_blocks=st.integers(1, 12), moves=st.lists(st.tuples(st.booleans(), st.integers(0, 11), st.integers(0, 11))))
def test_free_space_is_a_set_of_blocks(n_blocks: int, moves: list[tuple[bool, int, int]]) -> None:
    space = FreeSpace(n_blocks)
    free = set(range(n_blocks))
    for take, choice, offset in moves:
        taken = sorted(set(range(n_blocks)) - free)
        if take and free:
            start, length = space.extents()[choice % len(space.extents())]
            block = space.take(start, offset % length)
            assert block == start + offset % length
            free.remove(block)
        elif not take and taken:
            block = taken[choice % len(taken)]
            space.put(block)
            free.add(block)
        expected = extents_of(free)
        assert space.extents() == expected
        assert space.n_blocks == len(free)
        assert [b for b in range(n_blocks + 1) if space.starts_at(b)] == [extent.start for extent in expected]
        if expected:
            assert space.longest() == max(expected, key=lambda extent: (extent.length, -extent.start))
        marks, step = [n % 3 for n in range(choice, choice + 12)], 1 + offset % 5
        marked = extents_of({block for block in free if marks[block // step]})
        assert space.longest_marked(marks, step).length == max((extent.length for extent in marked), default=0)
        assert not marked or space.longest_marked(marks, step) in marked
