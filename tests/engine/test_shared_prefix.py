"""Groups that share a prefix, against brute force over lists of slots."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import FOREIGN, KeyView, Reading, Span
from engine.blocks import BlockTable
from engine.kv_manager import KvManager
from engine.sequence import Request, Sequence
from engine.shared_prefix import Reader, SharedPrefix, shared_prefixes

SIZE = 4
READING = Reading(padding=8, merge_limit=1.3, max_spans=3)


class Case(NamedTuple):
    blocks: list[int]
    start: int

    @property
    def slots(self) -> list[int]:
        """By position, the new token's included."""
        return [block * SIZE + i for block in self.blocks for i in range(SIZE)][: self.start + 1]

    def reader(self) -> Reader:
        table = BlockTable(SIZE)
        table.extend(self.blocks)
        return Reader(table.runs(), self.start)


@st.composite
def readers(draw: st.DrawFn) -> list[Case]:
    """Up to five tables that branch off each other; private blocks are in no other table."""
    unused = iter(draw(st.permutations(range(60))))
    cases: list[Case] = []
    for _ in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from(cases)).blocks if cases and draw(st.integers(0, 3)) else []
        blocks = parent[: draw(st.integers(0, len(parent)))]
        while len(blocks) < 8 and draw(st.integers(0, 5)):
            near = blocks[-1] + 1 if blocks else 70 + 30 * len(cases)  # of nobody else if nobody branched off here
            is_taken = near < 60 or any(near in case.blocks for case in cases)
            blocks.append(next(unused) if is_taken or draw(st.booleans()) else near)
        blocks.append(next(unused))
        cases.append(Case(blocks, draw(st.integers(SIZE * (len(blocks) - 1), SIZE * len(blocks) - 1))))
    return cases


def n_shared(cases: list[Case]) -> int:
    """Leading blocks that all tables have, before the one that each writes, over at most READING.max_spans runs."""
    readable = [case.blocks[: case.start // SIZE] for case in cases]
    prefix = [ids[0] for ids in itertools.takewhile(lambda ids: len(set(ids)) == 1, zip(*readable, strict=False))]
    run_starts = [n for n, block in enumerate(prefix) if n == 0 or block != prefix[n - 1] + 1]
    return [*run_starts, len(prefix)][: READING.max_spans + 1][-1]


def columns(spans: tuple[Span, ...]) -> list[int]:
    return [slot for first, n in spans for slot in range(first, first + n)]


def seen(view: KeyView) -> dict[int, int]:
    """Slot of each visible position."""
    slots = columns(view.spans)
    assert len(slots) == len(view.positions)
    return {int(p): slot for p, slot in zip(view.positions, slots, strict=True) if p != FOREIGN}


@settings(derandomize=True, deadline=None, max_examples=500)
@given(cases=readers(), min_blocks=st.integers(1, 3))
def test_groups_are_those_of_brute_force(cases: list[Case], min_blocks: int) -> None:
    prefixes = shared_prefixes([case.reader() for case in cases], SIZE, READING, min_positions=min_blocks * SIZE)
    left = set(range(len(cases)))
    for members, n_positions, spans, rests in prefixes:
        assert left.issuperset(members)
        assert list(members) == sorted(members)
        savings = [
            (len(group) - 1) * n_shared([cases[i] for i in group])
            for size in range(2, len(left) + 1)
            for group in itertools.combinations(sorted(left), size)
            if n_shared([cases[i] for i in group]) >= min_blocks
        ]
        assert n_positions == SIZE * n_shared([cases[i] for i in members])
        assert (len(members) - 1) * n_positions == SIZE * max(savings)
        assert len(spans) <= READING.max_spans
        for index, rest in zip(members, rests, strict=True):
            slots = cases[index].slots
            assert columns(spans) == slots[:n_positions]
            assert rest.first_position == n_positions
            visible = {p: slot for p, slot in seen(rest).items() if p <= cases[index].start}
            assert visible == {p: slots[p] for p in range(n_positions, len(slots))}
            if rest.ordered:
                assert np.array_equal(rest.positions, n_positions + np.arange(len(rest.positions)))
        left -= set(members)
    for pair in itertools.combinations(sorted(left), 2):
        assert n_shared([cases[i] for i in pair]) < min_blocks, "a pair was overlooked"


def test_a_branch_that_saves_more_goes_before_a_prefix_of_all() -> None:
    trunk = list(range(10))
    cases = [Case([*trunk[:2], 20], 9), Case([*trunk, 30], 40), Case([*trunk, 40], 41), Case([*trunk[:2], 50], 8)]
    prefixes = shared_prefixes([case.reader() for case in cases], SIZE, READING, min_positions=SIZE)
    assert [(prefix.members, prefix.n_positions) for prefix in prefixes] == [((1, 2), 40), ((0, 3), 8)]


def test_what_lies_in_more_runs_is_read_by_each() -> None:
    cases = [Case([0, 10, 20, 30, tail], 16) for tail in (40, 50)]
    [prefix] = shared_prefixes([case.reader() for case in cases], SIZE, READING, min_positions=SIZE)
    assert prefix.n_positions == 3 * SIZE
    assert prefix.spans == (Span(0, 4), Span(40, 4), Span(80, 4))


def test_draft_tokens_are_in_the_rest() -> None:
    [prefix] = shared_prefixes(
        [Reader(Case([0, 1, tail], 0).reader().runs, 8, n_tokens=3) for tail in (2, 5)], SIZE, READING, min_positions=8
    )
    assert [seen(rest)[10] for rest in prefix.rests] == [10, 22]


def test_forks_and_cached_prefixes_are_groups() -> None:
    """Through KvManager: two answers of one prompt, and a later request that found its first blocks."""
    kv = KvManager(n_blocks=20, block_size=SIZE)

    def sequence(tokens: list[int]) -> Sequence:
        result = Sequence(0, 0, 0, Request(tuple(tokens)), tokens, ())
        kv.open(result)
        return result

    first, second = sequence(list(range(10))), sequence(list(range(10)))
    kv.grow(first, 10)
    first.n_computed = 10
    kv.publish(first)
    kv.fork(first, second)
    third = sequence([*range(4), 9, 9, 9])
    kv.adopt(third, kv.lookup(third))
    for each in (first, second, third):
        kv.grow(each, 1)

    def found(*sequences: Sequence) -> list[SharedPrefix]:
        found_by = [Reader(each.tables[0].runs(), each.n_computed) for each in sequences]
        return shared_prefixes(found_by, SIZE, READING, min_positions=SIZE)

    assert [(prefix.members, prefix.n_positions) for prefix in found(first, second)] == [((0, 1), 8)]
    assert [(prefix.members, prefix.n_positions) for prefix in found(second, third)] == [((0, 1), 4)]
