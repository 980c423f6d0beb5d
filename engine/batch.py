"""One step's tokens as plain data: what runs, where its K and V go, which slots each sequence reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.blocks import Run

FOREIGN = np.iinfo(np.int32).max
"""Position of a slot that belongs to another sequence or to nobody: later than any query, so never seen."""


_ordered = np.arange(4096, dtype=np.int32)
"""Positions 0, 1, 2 …, shared by all ordered views; grown on demand."""
_ordered.flags.writeable = False


class Reading(NamedTuple):
    """How attention reads the keys of a sequence.

    padding: it reads a run in multiples of so many slots. merge_limit: several runs are read as one masked stretch up
    to this ratio of its length to the sequence's. max_spans: most stretches in which one sequence is read.
    """

    padding: int
    merge_limit: float
    max_spans: int


class Span(NamedTuple):
    """Consecutive slots of the pool."""

    first_slot: int
    n_slots: int


@dataclass(frozen=True)
class KeyView:
    """The slots that one sequence attends to, in the order attention reads them.

    positions: int32 [sum of n_slots], the position held by each slot, FOREIGN where none is visible.
    ordered: positions are 0, 1, 2 … from first_position on; then query position p sees exactly the first
    p + 1 - first_position columns. first_position: what comes before is read elsewhere, as a shared prefix.
    """

    spans: tuple[Span, ...]
    positions: NDArray[np.int32]
    ordered: bool
    first_position: int = 0


class SharedPrefix(NamedTuple):
    """Two or more sequences of a step that begin with the same slots.

    members: their places in the step, ascending. n_positions: the leading positions that they share, in whole blocks,
    all of which every new token sees. spans: the slots of these positions, in position order, and no others.
    rests: per member, how to read what lies behind.
    """

    members: tuple[int, ...]
    n_positions: int
    spans: tuple[Span, ...]
    rests: tuple[KeyView, ...]


@dataclass(frozen=True)
class Segment:
    """One sequence's part of a step: `n_tokens` new tokens from position `start` on.

    writes: where their K and V go. keys: what they attend to, themselves included, behind the prefix that is read
    together with other segments if there is one, `shared`.
    """

    start: int
    n_tokens: int
    writes: tuple[Span, ...]
    keys: KeyView
    shared: SharedPrefix | None = None


@dataclass(frozen=True)
class Batch:
    """The input of one forward pass.

    tokens, positions: int32 [T], segment after segment. groups: per KV group, the segments in that order.
    output_rows: the rows whose logits are wanted.
    """

    tokens: NDArray[np.int32]
    positions: NDArray[np.int32]
    groups: tuple[tuple[Segment, ...], ...]
    output_rows: tuple[int, ...]


def key_view(
    runs: Sequence[Run], block_size: int, n_positions: int, reading: Reading, *, first_position: int = 0
) -> KeyView:
    """How to read positions [first_position, n_positions) of a sequence that lies in `runs`.

    Several runs are read as one stretch, with the slots between them masked, when it is at most `merge_limit` times
    the number of tokens; more than `max_spans` runs are read as that many stretches, across the smallest gaps.

    The last span is read on to a multiple of `padding` columns. With one span for each run, those slots hold the next
    positions of the sequence, if it grows there, and are hidden until then.
    """
    padding, merge_limit, max_spans = reading
    spans = list(write_spans(runs, block_size, first_position, n_positions - first_position))
    n_gaps = len(spans) - 1
    if n_gaps > 0:
        by_slot = sorted(spans)
        length = by_slot[-1].first_slot + by_slot[-1].n_slots - by_slot[0].first_slot
        if length <= merge_limit * (n_positions - first_position):
            return _masked([by_slot], spans, first_position, block_size, padding)
        if len(spans) > max_spans:
            stretches = _cut_at_largest_gaps(by_slot, max_spans)
            return _masked(stretches, spans, first_position, block_size, padding)
    n_columns = sum(span.n_slots for span in spans)
    padded = Span(spans[-1].first_slot, spans[-1].n_slots + -n_columns % padding)
    positions = _positions(first_position, n_columns + -n_columns % padding)
    return KeyView((*spans[:-1], padded), positions, ordered=True, first_position=first_position)


def write_spans(runs: Sequence[Run], block_size: int, start: int, n_tokens: int) -> tuple[Span, ...]:
    """The slots of positions [start, start + n_tokens), as few spans as possible."""
    spans = []
    position = 0
    for run in runs:
        length = run.n_blocks * block_size
        low = max(start, position)
        high = min(start + n_tokens, position + length)
        if low < high:
            spans.append(Span(run.first_block * block_size + low - position, high - low))
        position += length
    return tuple(spans)


def _positions(first: int, n: int) -> NDArray[np.int32]:
    global _ordered  # noqa: PLW0603 - a cache
    if first + n > len(_ordered):
        _ordered = np.arange(2 * (first + n), dtype=np.int32)
        _ordered.flags.writeable = False
    return _ordered[first : first + n]


def _cut_at_largest_gaps(by_slot: list[Span], n_parts: int) -> list[list[Span]]:
    """Spans in slot order, as `n_parts` lists with small gaps inside."""
    gaps = [after.first_slot - before.first_slot - before.n_slots for before, after in pairwise(by_slot)]
    widest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[: n_parts - 1]
    cuts = [0, *(gap + 1 for gap in sorted(widest)), len(by_slot)]
    return [by_slot[start:stop] for start, stop in pairwise(cuts)]


def _masked(
    stretches: list[list[Span]], spans: list[Span], first_position: int, block_size: int, padding: int
) -> KeyView:
    """Read each list of spans as one stretch; only the slots of `spans`, in position order, are visible."""
    start_of = {}
    position = first_position
    for span in spans:
        start_of[span] = position
        position += span.n_slots
    read: list[Span] = []
    positions: list[NDArray[np.int32]] = []
    for number, stretch in enumerate(stretches, 1):
        first, last = stretch[0].first_slot, stretch[-1]
        length = last.first_slot + last.n_slots - first
        length += -length % block_size
        if number == len(stretches):
            length += -(sum(span.n_slots for span in read) + length) % padding
        held = np.full(length, FOREIGN, np.int32)
        for span in stretch:
            offset = span.first_slot - first
            start = start_of[span]
            held[offset : offset + span.n_slots] = np.arange(start, start + span.n_slots)
        read.append(Span(first, length))
        positions.append(held)
    return KeyView(tuple(read), np.concatenate(positions), ordered=False, first_position=first_position)
