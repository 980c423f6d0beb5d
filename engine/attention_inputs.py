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
    """

    n_tokens: int
    spans: tuple[Span, ...]
    writes: tuple[Span, ...]


@dataclass(frozen=True)
class Part:
    """One segment in a graph: rows [row, row + n_tokens) of the batch attend to `spans` under `mask`."""

    row: int
    n_tokens: int
    spans: tuple[Span, ...]
    mask: Input

    @property
    def n_columns(self) -> int:
        """Slots that are read, visible or not."""
        return sum(span.n_slots for span in self.spans)


def slots_of(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """Slots of the batch's tokens, in order: int64 [T]."""
    slots = [
        slot for segment in segments for s in segment.writes for slot in range(s.first_slot, s.first_slot + s.n_slots)
    ]
    return np.array(slots, np.int64)


def fill_mask(mask: NDArray[Any], segment: Segment) -> None:
    """0 where a query sees a column, minus infinity elsewhere; mask is [rows, columns].

    A single query's row is repeated in all rows.
    """
    keys = segment.keys
    if segment.n_tokens == 1:
        mask[:] = _hidden(keys.positions > segment.start, mask.dtype)
        return
    first = segment.start if keys.ordered else 0  # columns before `first` are seen by all
    mask[:, :first] = 0
    queries = np.arange(segment.start, segment.start + segment.n_tokens, dtype=np.int32)
    mask[:, first:] = _hidden(keys.positions[None, first:] > queries[:, None], mask.dtype)


def _hidden(is_hidden: NDArray[np.bool_], dtype: np.dtype[Any]) -> NDArray[Any]:
    values: NDArray[Any] = np.where(is_hidden, dtype.type(-np.inf), dtype.type(0))
    return values
