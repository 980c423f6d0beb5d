"""Blocks of the KV pool: who holds which (BlockAllocator), and where a sequence's tokens lie (BlockTable).

Only ids are handled here; the tensors behind them belong to the KV pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.free_space import Extent, FreeSpace
from engine.prefix_cache import CachedBlock, PrefixCache

BLOCK_SIZE = 16
"""Tokens in a block."""

GROWTH_ROOM = 16
"""Blocks wanted free on both sides of a new run, for the next turns: 256 tokens. With less, it begins elsewhere."""


class Run(NamedTuple):
    """`n_blocks` consecutive block ids from `first_block` on, at consecutive places of a block table."""

    first_block: int
    n_blocks: int


class BlockCopy(NamedTuple):
    """Copy the K and V of `n_blocks` consecutive blocks of a KV group, in every layer.

    source, target: the first block on either side; the two stretches do not overlap.
    """

    group: int
    source: int
    target: int
    n_blocks: int = 1


class BlockTable:
    """Block ids of one sequence in one KV group, in position order: position p lies in block p // block_size."""

    def __init__(self, block_size: int = BLOCK_SIZE) -> None:
        self.block_size = block_size
        self._blocks: list[int] = []
        self._runs: list[Run] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> int:
        return self._blocks[index]

    def __iter__(self) -> Iterator[int]:
        return iter(self._blocks)

    @property
    def last(self) -> int | None:
        """The last block id."""
        return self._blocks[-1] if self._blocks else None

    def append(self, block: int) -> None:
        """Add a block at the end."""
        if self._blocks and block == self._blocks[-1] + 1:
            first_block, n_blocks = self._runs[-1]
            self._runs[-1] = Run(first_block, n_blocks + 1)
        else:
            self._runs.append(Run(block, 1))
        self._blocks.append(block)

    def extend(self, blocks: Iterable[int]) -> None:
        """Add blocks at the end."""
        for block in blocks:
            self.append(block)

    def truncate(self, n_blocks: int) -> list[int]:
        """Keep the first `n_blocks` and return the ids taken off, in position order."""
        removed = self._blocks[n_blocks:]
        del self._blocks[n_blocks:]
        surplus = len(removed)
        while surplus:
            first_block, length = self._runs.pop()
            if length > surplus:
                self._runs.append(Run(first_block, length - surplus))
            surplus -= min(surplus, length)
        return removed

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self._runs)

    def runs(self) -> list[Run]:
        """The table as maximal stretches of consecutive ids, in position order."""
        return self._runs.copy()

    def slot_mapping(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """Slots of positions start .. stop - 1: shape [stop - start]. The table must cover them."""
        size = self.block_size
        if stop == start + 1:
            return np.array([self._blocks[start // size] * size + start % size], np.int64)
        first = start // size
        blocks = np.array(self._blocks[first : -(-stop // size)], np.int64)
        slots = (blocks[:, None] * size + np.arange(size)).reshape(-1)
        return slots[start - first * size : stop - first * size]


class BlockAllocator:
    """Owner of all block ids of one KV group. Each block is exactly one of

    - free: nobody wants its content,
    - cached: the prefix cache can find it, no sequence refers to it,
    - in use: its reference count, the number of table entries that point at it, is above zero.

    Cached blocks are evicted only when a block is needed and none is free.
    """

    def __init__(self, n_blocks: int, cache: PrefixCache, commit_step: int | None = None) -> None:
        """Own `n_blocks` blocks. commit_step: see KvPool.commit_step; None where all memory is there from the start."""
        self.n_blocks = n_blocks
        self._commit_step = commit_step or n_blocks
        self._committed = bytearray(-(-n_blocks // self._commit_step))
        """For each step, whether memory stands behind it: 1 once a block of it has been handed out."""
        self.cache = cache
        self._free = FreeSpace(n_blocks)
        self._ref_counts = [0] * n_blocks
        # Tail-before-head eviction frees ids in descending order. Freed one by one, they would make runs of
        # one block; a small batch (under 2 % of the pool) becomes an extent that is used in ascending order.
        self._eviction_batch = min(32, max(1, n_blocks // 64))

    @property
    def n_available(self) -> int:
        """Blocks that can be allocated: free or cached."""
        return self._free.n_blocks + self.cache.n_evictable

    @property
    def n_free(self) -> int:
        """Blocks that can be allocated without an eviction."""
        return self._free.n_blocks

    @property
    def n_used(self) -> int:
        """Blocks that a sequence refers to."""
        return self.n_blocks - self.n_available

    def ref_count(self, block: int) -> int:
        """How many table entries point at the block."""
        return self._ref_counts[block]

    def is_shared(self, block: int) -> bool:
        """Whether more than one table entry points at the block, so that a writer must copy it first."""
        return self._ref_counts[block] > 1

    def can_allocate(self, n: int) -> bool:
        """Whether `n` blocks can be had."""
        return n <= self.n_available

    def allocate(self, n: int, after: int | None = None, reach: int = 0, n_expected: int = 0) -> list[int]:
        """Take `n` blocks, each with one reference, in the order in which they should be written.

        after: the last block of the sequence that grows; its right neighbour is preferred, so that the
        sequence stays in one run. reach: up to so many blocks may be skipped to stay close, where attention still
        reads the sequence as one stretch; beyond, a new run begins where there is room for `n_expected` blocks, which
        the sequence will have asked for soon. `can_allocate(n)` must be true.
        """
        if not self.can_allocate(n):
            raise RuntimeError(f"{n} blocks were asked for, but only {self.n_available} can be had")
        self.make_room(n)
        blocks = []
        for i in range(n):
            after = self._next_block(after, reach, max(n, n_expected) - i)
            self._hand_out(after)
            blocks.append(after)
        return blocks

    def _hand_out(self, block: int) -> None:
        self._ref_counts[block] = 1
        self._committed[block // self._commit_step] = 1

    def _next_block(self, after: int | None, reach: int, n_expected: int) -> int:
        if after is None:
            return self._start_run(n_expected)
        if self._free.starts_at(after + 1):
            return self._free.take(after + 1)
        close = self._free.first_between(after + 2, after + 1 + reach)
        return self._start_run(n_expected) if close is None else self._free.take(close)

    def make_room(self, n: int) -> None:
        """Evict until `n` blocks are free, or nothing more can be: what is evicted together can be used as one run."""
        if n > self._free.n_blocks:
            wanted = max(n - self._free.n_blocks, self._eviction_batch)
            for _ in range(min(wanted, self.cache.n_evictable)):
                self._free.put(self.cache.evict())

    def space(self, n_evicted: int) -> FreeSpace:
        """The free blocks, as they would be after the `n_evicted` least valuable cached ones were evicted."""
        space = self._free.copy()
        for block in self.cache.next_evicted(n_evicted):
            space.put(block)
        return space

    def allocate_stretch(self, start: int, n: int) -> None:
        """Take `n` consecutive blocks from `start` on, each with one reference; evicts until they are free.

        `space` must hold them for some number of evictions.
        """
        while not self._free.holds(start, n):
            self._free.put(self.cache.evict())
        self._free.take_stretch(start, n)
        for block in range(start, start + n):
            self._hand_out(block)

    def stand_in(self, entry: CachedBlock, block: int, retention: int) -> None:
        """Let `block`, of the same content, stand for a published entry if nobody refers to the entry's own block.

        A request of class `retention` has it in use.
        """
        if entry.block != block and self._ref_counts[entry.block] == 0:
            self.cache.touch(entry, retention)
            self._free.put(self.cache.replace_block(entry, block))

    def take_over(self, tail: CachedBlock) -> None:
        """Give the block of a tail its only reference: it can be written to, and found no more."""
        self.cache.withdraw(tail)
        self._hand_out(tail.block)

    def drop_redundant_tails(self, entry: CachedBlock) -> None:
        """Free the tails whose tokens a published entry holds too."""
        for tail in self.cache.redundant_tails(entry):
            self.cache.withdraw(tail)
            self._free.put(tail.block)

    def share(self, block: int) -> None:
        """Add a reference to a block that is in use or cached."""
        if self._ref_counts[block] == 0:
            self.cache.hold(block)
        self._ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference; after the last one a published block stays cached, any other is free.

        A sequence releases its blocks from the tail to the head: the eviction order rests on that.
        """
        self._ref_counts[block] -= 1
        if self._ref_counts[block] == 0 and not self.cache.retire(block):
            self._free.put(block)

    def _start_run(self, n_expected: int) -> int:
        return self._free.take_at(self.run_start(self._free, n_expected))

    def run_start(self, space: FreeSpace, n: int = 1) -> int:
        """Where in `space` a run of `n` blocks is best begun, so that it and whoever ends before it have room to grow.

        That is in memory that is committed, so that memory follows use, if there is room for both; else behind it.
        """
        committed = space.longest_marked(self._committed, self._commit_step)
        if committed.length - n >= 2 * GROWTH_ROOM:
            return committed.start + (committed.length - n) // 2 * self._has_neighbour(committed)
        longest = space.longest()
        fresh = self._first_fresh(longest)
        if fresh + n <= longest.start + longest.length:
            return fresh
        return longest.start + max(0, longest.length - n + 1) // 2 * self._has_neighbour(longest)

    def _has_neighbour(self, extent: Extent) -> bool:
        """Whether somebody who may go on ends before an extent. Who is done may, as long as there is plenty of room."""
        start, length = extent
        return start > 0 and (self._ref_counts[start - 1] > 0 or length >= self.n_blocks // 4)

    def _first_fresh(self, extent: Extent) -> int:
        """The first block in an extent, or behind it, whose step is not committed; a neighbour keeps its room."""
        block = extent.start + GROWTH_ROOM * self._has_neighbour(extent)
        while block < self.n_blocks and self._committed[block // self._commit_step]:
            block = (block // self._commit_step + 1) * self._commit_step
        return block

    def check_integrity(self, tables: Iterable[BlockTable]) -> None:
        """Assert that every block is in exactly one state and every reference is accounted for; walks all blocks."""
        counted = [0] * self.n_blocks
        for table in tables:
            for block in table:
                counted[block] += 1
        assert counted == self._ref_counts
        free = [block for start, length in self._free.extents() for block in range(start, start + length)]
        assert len(free) == len(set(free)) == self._free.n_blocks
        assert all(self._ref_counts[block] == 0 and not self.cache.is_published(block) for block in free)
        unreferenced = [block for block in range(self.n_blocks) if not self._ref_counts[block]]
        assert set(free) == {block for block in unreferenced if not self.cache.is_published(block)}
        assert self.cache.n_evictable == len(unreferenced) - len(free)
        self.cache.check_integrity(self._ref_counts)
