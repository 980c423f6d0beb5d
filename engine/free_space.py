"""The free part of the pool, as extents: maximal stretches of consecutive free block ids."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """`length` consecutive free blocks from `start` on."""

    start: int
    length: int


class FreeSpace:
    """Free block ids. Taking and putting one block is O(1); finding the longest extent is O(extents).

    A block that is next to one in use is always the first of its extent, which is why a growing sequence
    finds its neighbour with one dictionary look-up.
    """

    def __init__(self, n_blocks: int) -> None:
        self.n_blocks = n_blocks
        self._length_at = {0: n_blocks}
        self._start_before = {n_blocks: 0}
        """Start of the extent that ends just before the key: how a freed block finds its left neighbour."""

    def starts_at(self, block: int) -> bool:
        """Whether an extent begins with this block."""
        return block in self._length_at

    def holds(self, start: int, length: int) -> bool:
        """Whether `length` consecutive blocks from `start` on are all free, found in O(extents)."""
        return length == 0 or any(
            first <= start and start + length <= first + n for first, n in self._length_at.items()
        )

    def longest(self) -> Extent:
        """The longest extent, the lowest among equals. There must be a free block."""
        start, length = max(self._length_at.items(), key=lambda item: (item[1], -item[0]))
        return Extent(start, length)

    def longest_marked(self, marks: Sequence[int], step: int) -> Extent:
        """The longest stretch of free blocks in which each block b has marks[b // step] set; length 0 if there is none.

        O(extents), and for long extents O(steps).
        """
        best = Extent(0, 0)
        for start, length in self._length_at.items():
            if length <= best.length:
                continue
            stretch, end = start, start + length
            while stretch < end:
                stop = stretch
                while stop < end and marks[stop // step]:
                    stop = min(end, (stop // step + 1) * step)
                if stop - stretch > best.length:
                    best = Extent(stretch, stop - stretch)
                stretch = (stop // step + 1) * step
        return best

    def first_between(self, low: int, high: int) -> int | None:
        """The lowest start of an extent in [low, high], found in O(extents)."""
        return min((start for start in self._length_at if low <= start <= high), default=None)

    def take(self, start: int, offset: int = 0) -> int:
        """Take the block `offset` blocks into the extent that begins at `start`, and return it."""
        length = self._length_at.pop(start)
        block, end = start + offset, start + length
        del self._start_before[end]
        if block > start:
            self._add(start, block)
        if block + 1 < end:
            self._add(block + 1, end)
        self.n_blocks -= 1
        return block

    def take_at(self, block: int) -> int:
        """Take a free block, wherever it is in its extent, and return it. O(extents)."""
        first = next(first for first, n in self._length_at.items() if first <= block < first + n)
        return self.take(first, block - first)

    def take_stretch(self, start: int, length: int) -> None:
        """Take `length` consecutive blocks from `start` on; they must be free."""
        self.take_at(start)
        for block in range(start + 1, start + length):
            self.take(block)

    def put(self, block: int) -> None:
        """Make a block free again, joined with the extents on both sides."""
        start = self._start_before.pop(block, block)
        self._length_at.pop(start, None)
        end = block + 1 + self._length_at.pop(block + 1, 0)
        self._add(start, end)
        self.n_blocks += 1

    def copy(self) -> FreeSpace:
        """The same free blocks, to be changed apart."""
        space = copy.copy(self)
        space._length_at = self._length_at.copy()
        space._start_before = self._start_before.copy()
        return space

    def extents(self) -> list[Extent]:
        """All extents, in order."""
        return [Extent(start, length) for start, length in sorted(self._length_at.items())]

    def _add(self, start: int, end: int) -> None:
        self._length_at[start] = end - start
        self._start_before[end] = start
