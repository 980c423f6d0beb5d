"""Block tables and the allocator, against plain lists and sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.blocks import GROWTH_ROOM, BlockAllocator, BlockTable, Run
from engine.prefix_cache import CachedBlock, PrefixCache

QUICK = settings(derandomize=True, deadline=None, max_examples=200)


def table_of(blocks: list[int], block_size: int = 4) -> BlockTable:
    table = BlockTable(block_size)
    table.extend(blocks)
    return table


def new_allocator(n_blocks: int) -> BlockAllocator:
    return BlockAllocator(n_blocks, PrefixCache(2))


def test_runs_are_maximal_stretches_of_consecutive_blocks() -> None:
    assert table_of([4, 5, 6, 2, 3, 9]).runs() == [Run(4, 3), Run(2, 2), Run(9, 1)]
    assert table_of([3, 2, 1]).runs() == [Run(3, 1), Run(2, 1), Run(1, 1)]
    assert table_of([]).runs() == []


def test_slots_follow_the_table() -> None:
    table = table_of([5, 1], block_size=4)
    assert table.slot_mapping(2, 7).tolist() == [22, 23, 4, 5, 6]
    assert table.slot_mapping(4, 5).tolist() == [4]
    assert table.slot_mapping(3, 3).tolist() == []
    assert table.slot_mapping(0, 8).dtype == np.int64


@QUICK
@given(
    blocks=st.lists(st.integers(0, 12), unique=True, max_size=12),
    block_size=st.integers(1, 4),
    cuts=st.lists(st.integers(0, 12), max_size=3),
    data=st.data(),
)
def test_a_table_is_its_list_of_blocks(
    blocks: list[int], block_size: int, cuts: list[int], data: st.DataObject
) -> None:
    table = table_of(blocks, block_size)
    for cut in cuts:
        assert table.truncate(cut) == blocks[cut:]
        blocks = blocks[:cut]
        if 50 not in blocks:
            table.append(50)
            blocks = [*blocks, 50]
    assert list(table) == blocks
    runs = table.runs()
    assert [block for first, n in runs for block in range(first, first + n)] == blocks
    assert all(a.first_block + a.n_blocks != b.first_block for a, b in itertools.pairwise(runs))
    slots = [block * block_size + i for block in blocks for i in range(block_size)]
    start = data.draw(st.integers(0, len(slots)))
    stop = data.draw(st.integers(start, len(slots)))
    assert table.slot_mapping(start, stop).tolist() == slots[start:stop]


def test_a_growing_sequence_stays_in_one_run() -> None:
    allocator = new_allocator(8)
    [first] = allocator.allocate(1)
    assert first == 0, "an empty pool is used from its low end"
    assert allocator.allocate(2, after=first) == [1, 2]
    assert allocator.allocate(1, after=2) == [3]


def test_a_new_run_leaves_its_neighbour_room_to_grow() -> None:
    allocator = new_allocator(9)
    assert allocator.allocate(1) == [0]
    [middle] = allocator.allocate(1)
    assert middle == 5
    assert allocator.allocate(2, after=0) == [1, 2]
    assert allocator.allocate(2, after=middle) == [6, 7]


def test_new_runs_begin_in_committed_memory_while_all_have_room() -> None:
    allocator = BlockAllocator(1024, PrefixCache(2), commit_step=128)
    assert allocator.allocate(40) == list(range(40))
    assert allocator.allocate(20) == list(range(40 + 34, 94)), "half of what is left of the step is before it"
    assert allocator.allocate(3) == [128, 129, 130], "less than twice the room is left on either side"
    assert allocator.allocate(1, n_expected=100) == [256], "131 to 255 hold it, but nothing that grows"
    assert allocator.allocate(1) == [257 + 63], "the longer of two stretches"


def test_a_run_behind_the_committed_memory_leaves_its_neighbour_room() -> None:
    allocator = BlockAllocator(1024, PrefixCache(2), commit_step=128)
    allocator.allocate(127)
    assert allocator.allocate(1) == [127 + GROWTH_ROOM]


def test_where_all_memory_is_there_the_room_is_as_large_as_it_can_be() -> None:
    allocator = new_allocator(1000)
    assert allocator.allocate(2) == [0, 1]
    assert allocator.allocate(1) == [2 + 498]


def test_a_run_is_put_where_all_that_is_expected_has_room() -> None:
    allocator = new_allocator(200)
    allocator.allocate(20)
    assert allocator.allocate(30, n_expected=100) == list(range(20 + 40, 90))


def test_the_room_of_a_finished_sequence_is_used_when_space_is_short() -> None:
    allocator = new_allocator(16)
    blocks = allocator.allocate(13)
    allocator.cache.publish(None, b"a", (1,), blocks[-1], 0)
    allocator.release(blocks[-1])
    assert allocator.allocate(3) == [13, 14, 15]


def test_eviction_in_batches_keeps_new_runs_long() -> None:
    allocator = new_allocator(512)
    parent = None
    blocks = allocator.allocate(512)
    for i, block in enumerate(blocks):
        parent = allocator.cache.publish(parent, b"%d" % i, (i,), block, 0)
    for block in reversed(blocks):
        allocator.release(block)
    table = table_of(allocator.allocate(1))
    for _ in range(63):
        table.extend(allocator.allocate(1, after=table.last))
    assert len(table.runs()) == 64 // (512 // 64), "evicted one by one, tail first, every run would be one block"
    assert allocator.cache.n_evicted == 64


def test_free_blocks_go_before_cached_ones() -> None:
    allocator = new_allocator(4)
    a, b = allocator.allocate(2)
    allocator.cache.publish(None, b"a", (1,), a, 0)
    for block in (b, a):
        allocator.release(block)
    assert a not in allocator.allocate(3)
    assert allocator.cache.n_evicted == 0
    assert allocator.allocate(1) == [a]
    assert allocator.cache.n_evicted == 1


class AllocatorMachine(RuleBasedStateMachine):
    """Sequences that grow, share, publish and release; the model is a list of tables and a dict of cached blocks."""

    allocator: BlockAllocator

    @initialize(n_blocks=st.integers(1, 12))
    def start(self, n_blocks: int) -> None:
        self.allocator = new_allocator(n_blocks)
        self.tables: list[list[int]] = []
        self.published: set[int] = set()
        self.n_contents = 0

    def _in_use(self) -> set[int]:
        return {block for table in self.tables for block in table}

    @rule(n=st.integers(0, 5), which=st.integers(0, 5))
    def allocate(self, n: int, which: int) -> None:
        allocator = self.allocator
        if not self.tables or which == 0:
            self.tables.append([])
        table = self.tables[which % len(self.tables)]
        in_use = self._in_use()
        can = allocator.can_allocate(n)
        assert can == (n <= allocator.n_blocks - len(in_use))
        n_free = allocator.n_blocks - len(in_use | self.published)
        n_evicted = allocator.cache.n_evicted
        if not can:
            with pytest.raises(RuntimeError):
                allocator.allocate(n)
            assert allocator.cache.n_evicted == n_evicted
            return
        neighbour = table[-1] + 1 if table else None
        neighbour_is_free = neighbour in set(range(allocator.n_blocks)) - in_use - self.published
        blocks = allocator.allocate(n, after=table[-1] if table else None)
        assert len(set(blocks)) == n
        assert in_use.isdisjoint(blocks)
        assert allocator.cache.n_evicted - n_evicted == max(0, n - n_free), "evicts only what is needed"
        if n and neighbour_is_free:
            assert blocks[0] == neighbour
        self.published = {block for block in self.published if allocator.cache.is_published(block)}
        assert in_use & self.published == {block for block in in_use if allocator.cache.is_published(block)}
        table.extend(blocks)

    @rule(which=st.integers(0, 5), n=st.integers(1, 4))
    def publish_unrelated(self, which: int, n: int) -> None:
        """Publish the first blocks of a table as a chain of their own, where they are not yet published."""
        if not self.tables:
            return
        parent: CachedBlock | None = None
        for block in self.tables[which % len(self.tables)][:n]:
            if block in self.published:
                break
            self.n_contents += 1
            parent = self.allocator.cache.publish(parent, b"%d" % self.n_contents, (self.n_contents,), block, 0)
            assert parent.published
            self.published.add(block)

    @rule(which=st.integers(0, 5), n=st.integers(1, 5))
    def fork(self, which: int, n: int) -> None:
        if self.tables:
            shared = self.tables[which % len(self.tables)][:n]
            for block in shared:
                self.allocator.share(block)
            self.tables.append(shared)

    @rule(which=st.integers(0, 5))
    def release(self, which: int) -> None:
        if self.tables:
            for block in reversed(self.tables.pop(which % len(self.tables))):
                self.allocator.release(block)

    @invariant()
    def every_block_is_in_one_state(self) -> None:
        allocator = self.allocator
        tables = [table_of(blocks) for blocks in self.tables]
        allocator.check_integrity(tables)
        in_use = self._in_use()
        assert allocator.n_used == len(in_use)
        assert allocator.cache.n_evictable == len(self.published - in_use)
        for block in range(allocator.n_blocks):
            assert allocator.ref_count(block) == sum(table.count(block) for table in self.tables)
            assert allocator.is_shared(block) == (allocator.ref_count(block) > 1)


TestAllocator = AllocatorMachine.TestCase
TestAllocator.settings = settings(derandomize=True, deadline=None, max_examples=150, stateful_step_count=30)
