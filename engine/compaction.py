"""When a scattered sequence is moved into consecutive blocks, and where to: decisions only, on block ids.

Costs are counted in columns: one is the time in which attention reads the K and V of one token, in all layers. A move
is worth it where it costs less than it saves within a few steps. Blocks that other sequences refer to stay where they
are: a copy would take memory from everyone, and a prefix that is shared can be attended to once for all who share it.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.batch import Reading, key_view
from engine.blocks import BlockTable, Run
from engine.free_space import FreeSpace


class CompactionPolicy(NamedTuple):
    """What moving costs and saves, and how often it may happen.

    reading: how attention reads a sequence. span_columns: columns for each span after the first that is read, and for
    each run that is copied. slot_columns: for copying a slot. move_columns: for building two graphs, that of the
    copies and the next step's. evicted_columns: for a cached block that is lost, and in a few cases computed again.
    payback_steps: decodes within which a move must pay. interval: tokens from one look at a sequence to the next, and
    the room wanted behind it, so that it still lies in one run by then.

    The defaults were measured with a model of 135 million parameters on two AVX-512 cores, at 500 to 2,000 tokens.
    """

    reading: Reading
    span_columns: int = 200
    slot_columns: int = 1
    move_columns: int = 1000
    evicted_columns: int = 250
    payback_steps: int = 16
    interval: int = 128


class Movable(NamedTuple):
    """A run that may move. offset: blocks that may move before it."""

    offset: int
    run: Run


class Move(NamedTuple):
    """Put the blocks of a table from index `n_kept` on into consecutive blocks from `start` on."""

    n_kept: int
    start: int


def displaced(table: BlockTable, move: Move) -> list[Movable]:
    """The runs that a move copies, each to `start + offset`: all but those that lie there already."""
    return [part for part in _movable(table, move.n_kept) if part.run.first_block != move.start + part.offset]


def read_cost(table: BlockTable, n_positions: int, policy: CompactionPolicy) -> int:
    """Columns of one decode that reads the first `n_positions` tokens of a table."""
    view = key_view(table.runs(), table.block_size, n_positions, policy.reading)
    return len(view.positions) + policy.span_columns * (len(view.spans) - 1)


def can_pay(table: BlockTable, n_positions: int, n_steps: int, policy: CompactionPolicy) -> bool:
    """Whether a move to the best of all places would pay within `n_steps` decodes."""
    saved = read_cost(table, n_positions, policy) - n_positions
    return min(n_steps, policy.payback_steps) * saved > policy.move_columns


def choose_move(
    table: BlockTable,
    n_kept: int,
    space: FreeSpace,
    fresh_start: int,
    *,
    n_positions: int,
    n_steps: int,
    n_evicted: int,
    policy: CompactionPolicy,
) -> Move | None:
    """The move that gains most within `n_steps` decodes over `n_positions` tokens; None if none gains.

    n_kept: blocks at the head of the table that stay, at least one less than all. space: the blocks that can be had
    when `n_evicted` cached ones are evicted; fresh_start: where a new run would begin in it. Tried besides: so that
    the longest run of the table stays, and behind the blocks that are kept.
    """
    offset, longest = max(_movable(table, n_kept), key=lambda part: part.run.n_blocks)
    starts = [fresh_start, longest.first_block - offset, *([table[n_kept - 1] + 1] if n_kept else [])]
    n_steps = min(n_steps, policy.payback_steps)
    best, least = None, n_steps * read_cost(table, n_positions, policy)
    for move in (Move(n_kept, start) for start in starts):
        if _fits(table, move, space, policy):
            cost = _copy_cost(table, move, policy) + policy.evicted_columns * n_evicted
            cost += n_steps * read_cost(moved(table, move), n_positions, policy)
            if cost < least:
                best, least = move, cost
    return best


def moved(table: BlockTable, move: Move) -> BlockTable:
    """The table after a move."""
    result = BlockTable(table.block_size)
    result.extend(table[i] for i in range(move.n_kept))
    result.extend(range(move.start, move.start + len(table) - move.n_kept))
    return result


def _fits(table: BlockTable, move: Move, space: FreeSpace, policy: CompactionPolicy) -> bool:
    """Whether all blocks that a move needs, and those for the room to grow behind them, are in `space`."""
    end = move.start + len(table) - move.n_kept
    room = -(-policy.interval // table.block_size)
    return space.holds(end, room) and all(
        space.holds(move.start + offset, run.n_blocks) for offset, run in displaced(table, move)
    )


def _copy_cost(table: BlockTable, move: Move, policy: CompactionPolicy) -> int:
    parts = displaced(table, move)
    n_slots = sum(part.run.n_blocks for part in parts) * table.block_size
    return policy.move_columns + policy.slot_columns * n_slots + policy.span_columns * len(parts)


def _movable(table: BlockTable, n_kept: int) -> list[Movable]:
    parts = []
    index = 0
    for first_block, n_blocks in table.runs():
        kept = min(n_blocks, max(0, n_kept - index))
        if kept < n_blocks:
            parts.append(Movable(index + kept - n_kept, Run(first_block + kept, n_blocks - kept)))
        index += n_blocks
    return parts
