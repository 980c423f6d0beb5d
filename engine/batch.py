"""One step's tokens as plain data: what runs, where its K and V go, which slots each sequence reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.blocks import Run

FOREIGN = np.iinfo(np.int32).max
"""Position of a slot that belongs to another sequence or to nobody: later than any query, so never seen."""


_ordered = np.arange(4096, dtype=np.int32)
"""Positions 0, 1, 2 …, shared by all ordered views; grown on demand, never written."""


class Span(NamedTuple):
    """Consecutive slots of the pool."""

    first_slot: int
    n_slots: int


@dataclass(frozen=True)
class KeyView:
    """The slots that one sequence attends to, in the order attention reads them.

    positions: int32 [sum of n_slots], the position held by each slot, FOREIGN where none is visible.
    ordered: positions are 0, 1, 2 …; then query position p sees exactly the first p + 1 columns.
    """

    spans: tuple[Span, ...]
    positions: NDArray[np.int32]
    ordered: bool


@dataclass(frozen=True)
class Segment:
    """One sequence's part of a step: `n_tokens` new tokens from position `start` on.

    writes: where their K and V go. keys: what they attend to, themselves included.
    """

    start: int
    n_tokens: int
    writes: tuple[Span, ...]
    keys: KeyView


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


def key_view(runs: Sequence[Run], block_size: int, n_positions: int, *, padding: int, merge_limit: float) -> KeyView:
    """How to read `n_positions` tokens that lie in `runs`, in position order.

    Several runs are read as one masked stretch when it is at most `merge_limit` times the sequence's length.

    The last run is read on to a multiple of `padding` columns: those slots hold the next positions of the
    sequence, if it grows there, and are hidden until then.
    """
    trimmed = _trim(runs, block_size, n_positions)
    if len(trimmed) > 1:
        stretch = _stretch(trimmed)
        if stretch.n_slots <= merge_limit * n_positions:
            return _masked(stretch, trimmed, padding)
    spans = [*trimmed[:-1], _pad(trimmed[-1], sum(span.n_slots for span in trimmed), padding)]
    n_columns = sum(span.n_slots for span in spans)
    return KeyView(tuple(spans), _first_positions(n_columns), ordered=True)


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


def _first_positions(n: int) -> NDArray[np.int32]:
    global _ordered  # noqa: PLW0603 - a cache
    if n > len(_ordered):
        _ordered = np.arange(2 * n, dtype=np.int32)
    return _ordered[:n]


def _trim(runs: Sequence[Run], block_size: int, n_positions: int) -> list[Span]:
    spans = []
    for run in runs:
        n_slots = min(run.n_blocks * block_size, n_positions)
        if n_slots <= 0:
            break
        spans.append(Span(run.first_block * block_size, n_slots))
        n_positions -= n_slots
    return spans


def _pad(span: Span, n_columns: int, padding: int) -> Span:
    return Span(span.first_slot, span.n_slots + -n_columns % padding)


def _stretch(spans: list[Span]) -> Span:
    first = min(span.first_slot for span in spans)
    return Span(first, max(span.first_slot + span.n_slots for span in spans) - first)


def _masked(stretch: Span, spans: list[Span], padding: int) -> KeyView:
    """Read `stretch` whole; only the slots of `spans` are visible."""
    whole = _pad(stretch, stretch.n_slots, padding)
    positions = np.full(whole.n_slots, FOREIGN, np.int32)
    position = 0
    for span in spans:
        offset = span.first_slot - stretch.first_slot
        positions[offset : offset + span.n_slots] = np.arange(position, position + span.n_slots)
        position += span.n_slots
    return KeyView((whole,), positions, ordered=False)
