"""The blocks of a KV pool by whose they are, as few cells that fit a panel."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence

from engine.survey import SEVERAL, BlockState, PoolSurvey


class BlockKind(enum.Enum):
    """Whose a block is, seen from one chat. The value is the character that shows it, also without colour."""

    OURS = "█"
    OTHERS = "▓"
    SHARED = "◆"
    CACHED_OURS = "▒"
    CACHED_OTHERS = "░"
    FREE = "·"


def kinds_of(survey: PoolSurvey, chat_id: int) -> list[BlockKind]:
    """The kind of each block, in the order of the pool."""
    return [_kind(state, owner, chat_id) for state, owner in zip(survey.states, survey.owners, strict=True)]


def _kind(state: int, owner: int, chat_id: int) -> BlockKind:
    if state == BlockState.FREE:
        return BlockKind.FREE
    if owner == SEVERAL:
        return BlockKind.SHARED
    if state == BlockState.USED:
        return BlockKind.OURS if owner == chat_id else BlockKind.OTHERS
    return BlockKind.CACHED_OURS if owner == chat_id else BlockKind.CACHED_OTHERS


def blocks_per_cell(n_blocks: int, n_cells: int) -> int:
    """How many blocks one cell stands for, so that all fit."""
    return max(1, -(-n_blocks // max(1, n_cells)))


def cells_of(kinds: Sequence[BlockKind], per_cell: int) -> list[BlockKind]:
    """One kind for each so many blocks: the most frequent one that is not free, so that no use goes unseen."""
    cells = []
    for start in range(0, len(kinds), per_cell):
        counts = Counter(kinds[start : start + per_cell])
        counts.pop(BlockKind.FREE, None)
        cells.append(counts.most_common(1)[0][0] if counts else BlockKind.FREE)
    return cells
