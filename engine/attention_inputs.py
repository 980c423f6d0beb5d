"""What all attention compositions share: the shape of a step, and the slots and masks that are its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.batch import Segment, Span
from engine.graph_builder import Input


class SegmentShape(NamedTuple):
    """What a graph depends on in one segment; batches of equal shapes can share a graph.

    writes: fixed in the graph for chunks whose V is copied span by span, () where slots are an input.
    members, prefix, rests: of the prefix that is read together with other segments, () if there is none.
    """

    n_tokens: int
    spans: tuple[Span, ...]
    writes: tuple[Span, ...]
    members: tuple[int, ...] = ()
    prefix: tuple[Span, ...] = ()
    rests: tuple[tuple[Span, ...], ...] = ()


@dataclass(frozen=True)
class Part:
    """Queries of one segment in a graph: rows [row, row + n_tokens) of the batch attend to `spans` under `mask`.

    segment: its place in the step. first: the query of the segment with which the part begins.
    is_flash: whether flash attention computes it.
    """

    segment: int
    row: int
    first: int
    n_tokens: int
    spans: tuple[Span, ...]
    mask: Input
    is_flash: bool

    @property
    def n_columns(self) -> int:
        """Slots that are read, visible or not."""
        return sum(span.n_slots for span in self.spans)


@dataclass(frozen=True)
class SharedPart:
    """Decodes in a graph that begin with the same slots: rows [row, row + m) of the batch, m the number of segments.

    segments: their places in the step. prefix: the slots that they share, all visible. rests: what else each reads.
    scores: F32 [m*G*HK, n]; rows i, m + i, 2m + i … are those of segment i, columns the prefix and then its rest.
    mask: the same rows, of one KV head.
    """

    segments: tuple[int, ...]
    row: int
    prefix: tuple[Span, ...]
    rests: tuple[tuple[Span, ...], ...]
    scores: Input
    mask: Input

    @property
    def n_tokens(self) -> int:
        """One for each segment."""
        return len(self.segments)

    @property
    def n_prefix(self) -> int:
        """Slots that all segments read."""
        return sum(span.n_slots for span in self.prefix)

    @property
    def n_columns(self) -> int:
        """Slots of the prefix, and of the longest rest."""
        return self.mask.shape[1]


def slots_of(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """Slots of the batch's tokens, in order: int64 [T]."""
    slots = [
        slot for segment in segments for s in segment.writes for slot in range(s.first_slot, s.first_slot + s.n_slots)
    ]
    return np.array(slots, np.int64)


def fill_mask(mask: NDArray[Any], segment: Segment, first: int = 0) -> None:
    """0 where a query sees a column, minus infinity elsewhere; mask is [rows, columns].

    The rows are queries of the segment from `first` on, the columns those that its keys begin with.
    A single token's row is repeated in all rows.
    """
    n_rows, n_columns = mask.shape
    keys = segment.keys
    positions = keys.positions[:n_columns]
    if segment.n_tokens == 1:
        mask[:] = _hidden(positions > segment.start, mask.dtype)
        return
    start = segment.start + first
    n_seen = min(start, n_columns) if keys.ordered else 0  # columns before are seen by all
    mask[:, :n_seen] = 0
    queries = np.arange(start, start + n_rows, dtype=np.int32)
    mask[:, n_seen:] = _hidden(positions[None, n_seen:] > queries[:, None], mask.dtype)


def fill_shared_mask(part: SharedPart, segments: Sequence[Segment]) -> None:
    """The mask of a shared part: the whole prefix, and of the rest what `fill_mask` shows each segment."""
    mask, m = part.mask.array, part.n_tokens
    mask[:, : part.n_prefix] = 0
    mask[:, part.n_prefix :] = -np.inf
    for i, index in enumerate(part.segments):
        segment = segments[index]
        positions = segment.keys.positions
        mask[i::m, part.n_prefix : part.n_prefix + len(positions)] = _hidden(positions > segment.start, mask.dtype)


def _hidden(is_hidden: NDArray[np.bool_], dtype: np.dtype[Any]) -> NDArray[Any]:
    values: NDArray[Any] = np.where(is_hidden, dtype.type(-np.inf), dtype.type(0))
    return values
