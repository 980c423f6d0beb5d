"""Attention over KvLayout.PACKED, for the CPU: the parts of a batch, and the slots and masks that are inputs.

engine/packed_products.py has the compositions. Here a segment becomes one part, or, when a long chunk is to be packed,
a part for each block of its queries, which reads no further than its last query sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import ggml
from engine.attention_choice import FLASH_TILE, AttentionChoice
from engine.attention_inputs import Part, SharedPart, fill_mask, fill_shared_mask, slots_of
from engine.batch import Segment, SharedPrefix, Span
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvPool
from engine.packed_products import PackedProducts, is_flash
from engine.plan import Attention

QUERY_BLOCK = 32
"""Queries of a long chunk that are packed together: their scores stay in the caches, and little of them is hidden."""

COPY_TOKENS = 16
"""From this many tokens on, V is written by a transposed copy per span; below, element by element, so that
the graph does not depend on the slots and can be used again."""


class PackedAttention:
    """AttentionOps with packed products for decodes and short chunks, and the choice for long ones."""

    def __init__(
        self,
        builder: GraphBuilder,
        pool: KvPool,
        plan: Attention,
        segments: Sequence[Segment],
        choice: AttentionChoice,
    ) -> None:
        self._b = builder
        self._pool = pool
        self._choice = choice
        self._products = PackedProducts(builder, pool, plan, choice)
        self._channels = plan.n_head_kv * plan.head_dim_v
        self._n_tokens = sum(segment.n_tokens for segment in segments)
        self._slots = builder.input_1d(ggml.I64, self._n_tokens)
        self._parts: list[Part | SharedPart] = []
        self._copies: list[tuple[int, Span]] = []
        """Rows of V that are copied as a matrix: the first of them, and the slots they go to."""
        scattered: list[int] = []
        row = 0
        for index, segment in enumerate(segments):
            self._add_parts(plan, segment, index, row)
            if segment.n_tokens >= COPY_TOKENS:
                offset = row
                for span in segment.writes:
                    self._copies.append((offset, span))
                    offset += span.n_slots
            else:
                scattered.extend(range(row, row + segment.n_tokens))
            row += segment.n_tokens
        self._scattered = np.array(scattered, np.int64)
        """Rows of V that are written element by element."""
        self._channel_offsets = np.arange(self._channels, dtype=np.int64) * pool.stride
        n = len(scattered)
        self._elements = builder.input_1d(ggml.I64, n * self._channels) if n else None
        self._scattered_ids = builder.input_1d(ggml.I32, n) if 0 < n < self._n_tokens else None
        self._decoded: list[_Decoded | None] = [None] * len(segments)

    def _add_parts(self, plan: Attention, segment: Segment, index: int, row: int) -> None:
        if segment.shared is not None:
            if segment.shared.members[0] == index:
                self._parts.append(self._shared_part(plan, segment.shared, row))
            return
        flash = is_flash(self._choice, segment.n_tokens)
        block = segment.n_tokens if flash or segment.n_tokens < FLASH_TILE else QUERY_BLOCK
        for first in range(0, segment.n_tokens, block):
            n_tokens = min(block, segment.n_tokens - first)
            spans = _seen_spans(segment, first + n_tokens, self._pool.layout.reading.padding)
            n_columns = sum(span.n_slots for span in spans)
            if flash:
                mask = self._b.input_2d(ggml.F16, n_columns, n_tokens)
            else:
                n_rows = self._products.mask_rows(plan, n_tokens, n_columns)
                mask = self._b.input_2d(ggml.F32, n_columns, n_rows)
            self._parts.append(Part(index, row + first, first, n_tokens, spans, mask, flash))

    def _shared_part(self, plan: Attention, shared: SharedPrefix, row: int) -> SharedPart:
        rests = tuple(rest.spans for rest in shared.rests)
        n_columns = shared.n_positions + max(len(rest.positions) for rest in shared.rests)
        n_rows = len(shared.members) * plan.n_head // plan.n_head_kv
        scores = self._b.input_2d(ggml.F32, n_columns, n_rows * plan.n_head_kv)
        mask = self._b.input_2d(ggml.F32, n_columns, n_rows)
        return SharedPart(shared.members, row, shared.spans, rests, scores, mask)

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """See AttentionOps.store."""
        b, pool = self._b, self._pool
        v_pool = pool.v[layer]
        b.expand(ggml.set_rows(b.context, pool.k[layer], ggml.permute(b.context, k, 0, 2, 1, 3), self._slots.tensor))
        for row, span in self._copies:
            columns = ggml.transpose(b.context, b.columns(v, row, span.n_slots))
            b.expand(ggml.cpy(b.context, columns, self._products.value_columns(layer, span)))
        if self._elements is not None:
            rows = v if self._scattered_ids is None else ggml.get_rows(b.context, v, self._scattered_ids.tensor)
            n_elements = self._channels * len(self._scattered)
            elements = ggml.reshape_2d(b.context, v_pool, 1, pool.stride * self._channels)
            values = ggml.reshape_2d(b.context, rows, 1, n_elements)
            b.expand(ggml.set_rows(b.context, elements, values, self._elements.tensor))

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """See AttentionOps.attend."""
        b, width = self._b, plan.head_dim_v * plan.n_head
        if len(self._parts) == 1 and _is_row_major(self._parts[0]):
            return int(
                ggml.reshape_2d(b.context, self._attend_part(layer, plan, q, self._parts[0]), width, self._n_tokens)
            )
        row_bytes = width * 4
        total = q
        for part in self._parts:
            out = self._attend_part(layer, plan, q, part)
            if _is_row_major(part):
                out = ggml.reshape_2d(b.context, out, width, part.n_tokens)
                strides = (row_bytes, row_bytes * part.n_tokens, row_bytes * part.n_tokens)
            else:
                out = ggml.reshape_3d(b.context, out, plan.head_dim_v, part.n_tokens, plan.n_head)
                out = ggml.permute(b.context, out, 0, 2, 1, 3)
                strides = (plan.head_dim_v * 4, row_bytes, row_bytes * part.n_tokens)
            # The results of a part replace its queries, which nothing reads any more.
            total = ggml.set_inplace(b.context, total, out, *strides, part.row * row_bytes)
            b.expand(total)
        return int(ggml.reshape_2d(b.context, total, width, self._n_tokens))

    def _attend_part(self, layer: int, plan: Attention, q: int, part: Part | SharedPart) -> int:
        b = self._b
        nb = ggml.head(q).nb
        rows = ggml.view_3d(b.context, q, plan.head_dim_k, plan.n_head, part.n_tokens, nb[1], nb[2], part.row * nb[2])
        if isinstance(part, SharedPart):
            return self._products.attend_shared(layer, plan, rows, part)
        return self._products.attend(layer, plan, rows, part)

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        decoded = [_decoded(segment) for segment in segments]
        if all(map(_follows, decoded, self._decoded)):
            # Every sequence goes on by one token in the same run: slots move by one, one more column is visible.
            self._slots.array += 1
            assert self._elements is not None
            self._elements.array += 1
            for part in self._parts:
                _show_next(part, segments)
        else:
            self._fill_all(segments)
        self._decoded = decoded

    def _fill_all(self, segments: Sequence[Segment]) -> None:
        slots = slots_of(segments)
        self._slots.array[:] = slots
        if self._elements is not None:
            target = self._elements.array.reshape(-1, self._channels)
            np.add(slots[self._scattered, None], self._channel_offsets, out=target)
        if self._scattered_ids is not None:
            self._scattered_ids.array[:] = self._scattered
        for part in self._parts:
            if isinstance(part, SharedPart):
                fill_shared_mask(part, segments)
                part.scores.array[:] = 0  # what no product writes is hidden, and must be a number
            else:
                fill_mask(part.mask.array, segments[part.segment], part.first)
        self._products.fill()


def _show_next(part: Part | SharedPart, segments: Sequence[Segment]) -> None:
    """Let decodes that go on by one token see one more column."""
    if not isinstance(part, SharedPart):
        part.mask.array[:, segments[part.segment].start] = 0
        return
    for i, index in enumerate(part.segments):
        column = segments[index].start  # the prefix and the rest are in order, one after the other
        part.mask.array[i :: part.n_tokens, column] = 0


def _is_row_major(part: Part | SharedPart) -> bool:
    """Whether the result of a part has all heads of a token side by side, and not all tokens of a head."""
    if isinstance(part, SharedPart):
        return False
    return part.n_tokens == 1 or part.is_flash


def _seen_spans(segment: Segment, n_tokens: int, padding: int) -> tuple[Span, ...]:
    """What the first `n_tokens` queries of a segment read: no columns beyond the last that they see, if in order."""
    keys = segment.keys
    if not keys.ordered:
        return keys.spans
    n_columns = segment.start + n_tokens
    left = n_columns + -n_columns % padding
    spans = []
    for span in keys.spans:
        if left <= 0:
            break
        spans.append(Span(span.first_slot, min(span.n_slots, left)))
        left -= span.n_slots
    return tuple(spans)


class _Decoded(NamedTuple):
    """Position and slot of a decode whose inputs are in the graph."""

    position: int
    slot: int


def _decoded(segment: Segment) -> _Decoded | None:
    if segment.n_tokens > 1 or not segment.keys.ordered:
        return None
    return _Decoded(segment.start, segment.writes[0].first_slot)


def _follows(now: _Decoded | None, before: _Decoded | None) -> bool:
    return now is not None and before is not None and now == (before.position + 1, before.slot + 1)
