"""Which sequences of a step begin with the same slots, so that attention can read those once for all of them.

Answers that forked from one prompt share its blocks, and so do requests that found the same cached prefix.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from engine.batch import Reading, SharedPrefix, key_view, write_spans
from engine.blocks import Run


class Reader(NamedTuple):
    """A sequence in a step: the runs of its block table, and `n_tokens` new tokens from position `start` on."""

    runs: Sequence[Run]
    start: int
    n_tokens: int = 1


class _Group(NamedTuple):
    members: tuple[int, ...]
    n_blocks: int

    @property
    def n_saved(self) -> int:
        """Blocks that are read once less than by each for itself."""
        return (len(self.members) - 1) * self.n_blocks


def shared_prefixes(
    readers: Sequence[Reader], block_size: int, reading: Reading, *, min_positions: int
) -> list[SharedPrefix]:
    """Groups that share at least `min_positions`, those that save most first; a reader is in one of them at most.

    A shared part lies in at most `reading.max_spans` runs; what a group shares beyond is in the rests.
    """
    min_blocks = max(1, -(-min_positions // block_size))
    common = [[0] * len(readers) for _ in readers]
    for i, j in itertools.combinations(range(len(readers)), 2):
        common[i][j] = common[j][i] = _common_blocks(readers[i], readers[j], block_size, reading.max_spans)
    left = list(range(len(readers)))
    prefixes = []
    while left:
        best = max((_best_group(leader, left, common, min_blocks) for leader in left), key=lambda group: group.n_saved)
        if best.n_saved == 0:
            break
        prefixes.append(_shared_prefix(readers, best, block_size, reading))
        left = [index for index in left if index not in best.members]
    return prefixes


def _common_blocks(a: Reader, b: Reader, block_size: int, max_runs: int) -> int:
    """Leading blocks that both tables have in common, and that neither writes in this step, within `max_runs` runs."""
    n_common = 0
    for run_a, run_b in zip(a.runs[:max_runs], b.runs[:max_runs], strict=False):
        if run_a.first_block == run_b.first_block:
            n_common += min(run_a.n_blocks, run_b.n_blocks)
        if run_a != run_b:
            break
    return min(n_common, a.start // block_size, b.start // block_size)


def _best_group(leader: int, left: Sequence[int], common: Sequence[Sequence[int]], min_blocks: int) -> _Group:
    """The group around a reader that saves most; the reader alone where nobody shares enough with it."""
    best = _Group((leader,), 0)
    others = sorted((index for index in left if index != leader), key=lambda index: -common[leader][index])
    for n_others, last in enumerate(others, 1):
        group = _Group(tuple(sorted([leader, *others[:n_others]])), common[leader][last])
        if group.n_blocks < min_blocks:
            break
        best = max(best, group, key=lambda group: group.n_saved)
    return best


def _shared_prefix(readers: Sequence[Reader], group: _Group, block_size: int, reading: Reading) -> SharedPrefix:
    n_positions = group.n_blocks * block_size
    members = [readers[index] for index in group.members]
    return SharedPrefix(
        group.members,
        n_positions,
        write_spans(members[0].runs, block_size, 0, n_positions),
        tuple(
            key_view(reader.runs, block_size, reader.start + reader.n_tokens, reading, first_position=n_positions)
            for reader in members
        ),
    )
