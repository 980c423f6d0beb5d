"""What a KV pool looks like from above: the state and the owner of every block, for people to look at."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from engine.scheduler_stats import SchedulerStats
from engine.sequence import KvStats, Sequence

if TYPE_CHECKING:  # it needs numpy, and the app imports this module without it
    from engine.kv_manager import KvManager

NOBODY, SEVERAL = 0, -1
"""Owners of a block that no request called its own, and of one that requests of several owners made use of."""


class BlockState(enum.IntEnum):
    """See BlockAllocator."""

    FREE = 0
    CACHED = 1
    USED = 2


class SurveyedSequence(NamedTuple):
    """A running sequence. owner: of its request. n_runs: stretches of consecutive blocks that it lies in."""

    owner: int
    n_tokens: int
    n_blocks: int
    n_runs: int


class PoolSurvey(NamedTuple):
    """The KV memory of an engine at one moment.

    stats: None for the contiguous engine, which has no blocks to show either. states, owners: of each block of the
    first KV group, a BlockState, and a Request.owner, NOBODY or SEVERAL. tokens_cached: in all cached blocks, of which
    those that a sequence ended with are not full.
    """

    kv: KvStats
    stats: SchedulerStats | None = None
    states: bytes = b""
    owners: tuple[int, ...] = ()
    sequences: tuple[SurveyedSequence, ...] = ()
    tokens_cached: int = 0


def survey_blocks(manager: KvManager, running: Iterable[Sequence]) -> tuple[bytes, tuple[int, ...]]:
    """`states` and `owners` of a survey."""
    group = manager.groups[0]
    states, owners = bytearray(group.n_blocks), [NOBODY] * group.n_blocks
    for block in range(group.n_blocks):
        entry = group.cache.entry_of(block)
        if group.ref_count(block):
            states[block] = BlockState.USED
        elif entry is not None:
            states[block] = BlockState.CACHED
        if entry is not None:
            owners[block] = SEVERAL if len(entry.owners) > 1 else entry.owners[0]
    for sequence in running:
        for block in sequence.tables[0]:
            if owners[block] not in (SEVERAL, sequence.request.owner):
                owners[block] = sequence.request.owner if owners[block] == NOBODY else SEVERAL
    return bytes(states), tuple(owners)
