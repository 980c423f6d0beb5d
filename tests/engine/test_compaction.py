"""Moves of scattered sequences: which one is chosen, and what becomes of the blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import Reading
from engine.blocks import BlockCopy, BlockTable, Run
from engine.compaction import CompactionPolicy, Move, choose_move, displaced, moved, read_cost
from engine.free_space import FreeSpace
from engine.kv_manager import KvManager
from engine.kv_pool import KvLayout
from engine.sequence import Request, Sequence
from tests.engine.fake_engine import FakeEngine
from tests.engine.recording import RecordingEngine
from tests.engine.test_kv_pool import contents, slot_axis

SIZE = 16
SPANS = CompactionPolicy(Reading(padding=32, merge_limit=1.3, max_spans=8))
"""As on the CPU."""
STRETCH = CompactionPolicy(Reading(padding=256, merge_limit=1.3, max_spans=1))
"""As on a GPU."""


def table_of(*runs: Run) -> BlockTable:
    table = BlockTable(SIZE)
    for first_block, n_blocks in runs:
        table.extend(range(first_block, first_block + n_blocks))
    return table


def free_in(n_blocks: int, *used: BlockTable) -> FreeSpace:
    space = FreeSpace(n_blocks)
    for start, length in [run for table in used for run in table.runs()]:
        space.take_stretch(start, length)
    return space


def choice(table: BlockTable, space: FreeSpace, policy: CompactionPolicy = SPANS, **options: Any) -> Move | None:
    defaults = {"n_kept": 0, "fresh_start": space.longest().start, "n_positions": len(table) * SIZE}
    return choose_move(table, space=space, policy=policy, **{**defaults, "n_steps": 100, "n_evicted": 0, **options})


def test_the_longest_run_stays_where_it_can_be_joined() -> None:
    table = table_of(Run(10, 4), Run(200, 20), Run(100, 4))
    move = choice(table, free_in(500, table))
    assert move == Move(0, 196)
    assert displaced(table, move) == [(0, Run(10, 4)), (24, Run(100, 4))]
    assert moved(table, move).runs() == [Run(196, 28)]


def test_everything_moves_where_the_longest_run_has_no_room() -> None:
    table, other = table_of(Run(10, 4), Run(200, 20), Run(100, 4)), table_of(Run(220, 10))
    assert choice(table, free_in(500, table, other)) == Move(0, 230)


def test_a_move_leaves_room_to_grow() -> None:
    table = table_of(Run(0, 3), Run(50, 10), Run(80, 3))
    room = SPANS.interval // SIZE
    for n_free, expected in ((room, Move(0, 47)), (room - 1, None)):
        wall = table_of(Run(20, 20), Run(63 + n_free, 17 - n_free), Run(83, 17))
        assert choice(table, free_in(100, table, wall)) == expected


def test_a_move_must_pay_within_the_steps_that_are_left() -> None:
    table = table_of(*(Run(20 * i, 8) for i in range(8)))
    space = free_in(500, table)
    # Copied: 7 of 8 runs, 896 slots; saved: 7 spans of 200 columns a step.
    cost = SPANS.move_columns + 7 * 8 * SIZE + 7 * SPANS.span_columns
    n_steps = cost // (7 * SPANS.span_columns)
    assert choice(table, space, n_steps=n_steps) is None
    assert choice(table, space, n_steps=n_steps + 1) is not None


def test_cached_blocks_are_given_up_only_for_much() -> None:
    table = table_of(Run(0, 20), Run(40, 20))
    space = free_in(200, table)
    assert choice(table, space, n_evicted=0) is not None
    assert choice(table, space, n_evicted=40) is None
    far = table_of(Run(0, 20), Run(480, 20))  # a GPU reads all 500 blocks
    assert choice(far, free_in(1000, far), STRETCH, n_evicted=40) is not None


def test_what_is_kept_stays_and_the_rest_goes_behind_it_if_it_can() -> None:
    table = table_of(Run(0, 20), Run(300, 2), Run(400, 2))
    assert choice(table, free_in(1000, table), STRETCH, n_kept=20) == Move(20, 20)
    assert choice(table, free_in(1000, table, table_of(Run(20, 1))), STRETCH, n_kept=20) != Move(20, 20)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    blocks=st.lists(st.integers(0, 30), min_size=2, max_size=12, unique=True),
    others=st.sets(st.integers(0, 30), max_size=10),
    data=st.data(),
)
def test_a_move_takes_only_free_blocks_and_lowers_the_cost(blocks: list[int], others: set[int], data: Any) -> None:
    policy = CompactionPolicy(Reading(1, 1.0, data.draw(st.integers(1, 3))), span_columns=1, move_columns=1, interval=3)
    table = BlockTable(2)
    table.extend(blocks)
    free = set(range(31)) - others - set(blocks)
    space = FreeSpace(31)
    for block in set(range(31)) - free:
        space.take_stretch(block, 1)
    if not free:
        return
    n_kept = data.draw(st.integers(0, len(blocks) - 1))
    n_positions = data.draw(st.integers(2 * len(blocks) - 1, 2 * len(blocks)))
    move = choice(table, space, policy, n_kept=n_kept, n_positions=n_positions)
    if move is None:
        return
    after = moved(table, move)
    expected = blocks.copy()
    for offset, run in displaced(table, move):
        part = slice(n_kept + offset, n_kept + offset + run.n_blocks)
        assert expected[part] == list(range(run.first_block, run.first_block + run.n_blocks))
        expected[part] = range(move.start + offset, move.start + offset + run.n_blocks)
        assert free.issuperset(expected[part])
    assert list(after) == expected
    assert free.issuperset({after.last + 1, after.last + 2} if after.last is not None else ())
    assert read_cost(after, n_positions, policy) < read_cost(table, n_positions, policy)


@pytest.mark.parametrize("layout", KvLayout)
def test_copies_that_fill_several_graphs_are_all_done(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    paged = RecordingEngine(tiny_model(), n_blocks=128, token_budget=1, layout=layout)
    try:
        pool, forward = paged._pool, paged._forward
        keys = contents(pool.k[0])
        keys[:] = np.random.default_rng(0).standard_normal(keys.shape)
        axis = slot_axis(pool.k[0], pool)
        before = np.moveaxis(keys, axis, 0).copy()
        copies = [BlockCopy(0, 2 * i, 127 - 2 * i) for i in range(30)]
        assert len(copies) > forward._copies_per_graph
        forward.copy_blocks(copies)
        after = np.moveaxis(keys, axis, 0)
        for _, source, target, _ in copies:
            assert np.array_equal(after[target * SIZE :][:SIZE], before[source * SIZE :][:SIZE])
    finally:
        paged.close()


class TestScheduled:
    """In a scheduler: 5 tokens a block of 2, scattered because every second block was taken."""

    POLICY = CompactionPolicy(Reading(1, 1.0, 2), span_columns=1, slot_columns=0, move_columns=0, interval=4)

    def start(self, n: int = 1, n_blocks: int = 40) -> tuple[FakeEngine, Sequence]:
        """An engine that has run the prompt of a scattered sequence; then all other blocks became free."""
        fake = FakeEngine(n_blocks=n_blocks, block_size=2, context=60, compaction=self.POLICY)
        allocator = fake.kv.groups[0]
        taken = allocator.allocate(n_blocks)
        for block in taken[::2]:
            allocator.release(block)
        fake.submit(Request(tuple(i % 3 for i in range(11)), max_tokens=20, n=n))
        fake.step()
        for block in taken[1::2]:
            allocator.release(block)
        [sequence, *_] = fake.scheduler.running
        assert sequence.tables[0].n_runs == 6
        return fake, sequence

    def test_a_scattered_sequence_is_moved_once(self) -> None:
        fake, sequence = self.start()
        plan = fake.step()
        assert plan is not None
        assert sum(copy.n_blocks for copy in plan.copies) == 6
        assert sequence.tables[0].n_runs == 1
        fake.finish()
        fake.check_idle()
        assert not any(plan.copies for plan in fake.plans[2:])

    def test_it_is_moved_again_only_after_the_interval(self) -> None:
        fake, sequence = self.start()
        fake.step()
        last = sequence.tables[0].last
        assert last is not None
        fake.kv.groups[0].allocate_stretch(last + 1, 1)  # somebody takes the room behind it
        n_runs = []
        for _ in range(self.POLICY.interval):
            fake.step()
            n_runs.append(sequence.tables[0].n_runs)
        assert [len(plan.copies) > 0 for plan in fake.plans[2:]] == [False, False, False, True]
        assert n_runs == [2, 2, 2, 1]

    def test_its_blocks_are_found_again_and_stored_once(self) -> None:
        fake, sequence = self.start()
        for _ in range(3):
            fake.step()
        assert fake.scheduler.stats().blocks_cached == 0, "what was copied is free again"
        history = tuple(sequence.token_ids)
        fake.cancel(1)
        again = fake.submit(Request((*history, 1), max_tokens=2))
        fake.finish()
        fake.check_idle()
        assert fake.stats(again).reused_tokens == 14

    def test_what_is_shared_with_a_fork_stays(self) -> None:
        fake, _ = self.start(n=2)
        fake.step()
        first, second = fake.scheduler.running
        assert list(first.tables[0])[:5] == list(second.tables[0])[:5]
        assert fake.scheduler.stats().blocks_used == 5 + 2
        fake.finish()
        fake.check_idle()

    def test_what_is_shared_stays_behind_duplicates_too(self) -> None:
        """A block of the sequence is found by another one, but those before it were published by a third."""
        kv = KvManager(n_blocks=40, block_size=2, compaction=self.POLICY)
        allocator = kv.groups[0]
        taken = allocator.allocate(40)
        for block in taken[::2]:
            allocator.release(block)

        def start(n_tokens: int) -> Sequence:
            sequence = Sequence(0, 0, 0, Request(tuple(range(n_tokens))), list(range(n_tokens)), ())
            kv.open(sequence)
            return sequence

        first, second, third = start(6), start(11), start(9)
        for sequence, n_tokens in ((first, 5), (second, 10)):
            kv.grow(sequence, n_tokens)
            sequence.n_computed = n_tokens
            kv.publish(sequence)
        kv.adopt(third, kv.lookup(third))
        table = second.tables[0]
        assert [allocator.is_shared(block) for block in table] == [False, False, True, True, False]
        for block in taken[1::2]:
            allocator.release(block)
        kv.grow(second, 1)
        shared = list(table)[2:4]
        copies = kv.compact(second)
        assert list(table)[2:4] == shared
        assert copies == []
        kv.check_integrity([first, second, third])

    @pytest.mark.parametrize("ends", ["failure", "cancellation"])
    def test_a_step_that_never_ran_leaves_the_cache_right(self, ends: str) -> None:
        fake, sequence = self.start()
        before = list(sequence.tables[0])
        if ends == "failure":
            plan = fake.scheduler.schedule()
            assert plan is not None
            assert plan.copies
            assert list(sequence.tables[0]) != before
            fake.cancel(1)  # as PagedEngine does; nothing was copied
        else:
            fake.step(cancel_before_complete=(1, None))
        again = fake.submit(Request(tuple(i % 3 for i in range(11)), max_tokens=3))
        fake.finish()
        fake.check_idle()
        assert fake.stats(again).reused_tokens == 10

    def test_after_a_preemption_the_moved_blocks_are_found(self) -> None:
        fake, sequence = self.start()
        for _ in range(3):
            fake.step()
        n_computed = sequence.n_computed
        fake.scheduler._preempt(sequence)
        fake.finish()
        fake.check_idle()
        assert fake.scheduler.stats().recomputed_tokens <= n_computed % 2 + 1
