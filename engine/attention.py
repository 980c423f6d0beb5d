"""Attention over the pool, composed of ggml operations; one composition per pool layout.

Shapes in ggml's order: D head size, H query heads, HK KV heads, G = H / HK query heads that share one
KV head, T new tokens of the batch, n columns (slots read), t queries of one part.

Packed composition: the G query heads of a KV head become G columns of one matrix, so that the F16
matrix kernels run and every key and value is read once per group:

    scores [n, t*G, HK] = K [D, n, HK] x q [D, t*G, HK]
    out    [D, t*G, HK] = V [n, D, HK] x softmax(scores)

A sequence in several spans has its scores computed span by span, one softmax over all, and its values
added span by span. Long chunks are cut into parts of `_PART` queries, each of which reads no column
later than its last query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine import ggml
from engine.batch import KeyView, Segment, Span
from engine.graph_builder import GraphBuilder, Input
from engine.kv_pool import KvLayout, KvPool
from engine.plan import Attention

_PART = 64
"""Queries per part of a long chunk."""

_COPY_TOKENS = 16
"""From this many tokens on, V is written by a transposed copy per span; below, element by element, so that
the graph does not depend on the slots and can be used again."""


class SegmentShape(NamedTuple):
    """What a graph depends on in one segment; equal shapes can share a graph.

    start and writes matter for chunks only and are fixed for decodes.
    """

    n_tokens: int
    spans: tuple[Span, ...]
    start: int
    writes: tuple[Span, ...]


class AttentionOps(Protocol):
    """Writes new K and V to the pool and attends to it, for the layers of one KV group in one graph."""

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """Write k [D, HK, T] and v [D*HK, T], both F32, to the slots of the batch."""

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """Attend with q [D, H, T]; returns [D*H, T]. May overwrite q."""

    def fill(self, segments: Sequence[Segment]) -> None:
        """Write slots and masks of a step into the graph's inputs."""


def segment_shape(segment: Segment, layout: KvLayout) -> SegmentShape:
    """The shape of a segment for the composition of `layout`."""
    is_chunk = layout is KvLayout.PACKED and segment.n_tokens >= _COPY_TOKENS
    return SegmentShape(
        n_tokens=segment.n_tokens,
        spans=segment.keys.spans,
        start=segment.start if is_chunk else 0,
        writes=segment.writes if is_chunk else (),
    )


def make_attention(builder: GraphBuilder, pool: KvPool, plan: Attention, segments: Sequence[Segment]) -> AttentionOps:
    """The composition for the pool's layout; `plan` is that of any layer of the group."""
    if pool.layout is KvLayout.PACKED:
        return PackedAttention(builder, pool, plan, segments)
    return FlashAttention(builder, pool, segments)


@dataclass(frozen=True)
class _Part:
    """Consecutive queries of one segment: rows [row, row + n_tokens) of the batch, reading `spans`."""

    row: int
    n_tokens: int
    spans: tuple[Span, ...]
    mask: Input


class PackedAttention:
    """The packed composition, over KvLayout.PACKED."""

    def __init__(self, builder: GraphBuilder, pool: KvPool, plan: Attention, segments: Sequence[Segment]) -> None:
        self._b = builder
        self._pool = pool
        self._group_size = plan.n_head // plan.n_head_kv
        self._channels = plan.n_head_kv * plan.head_dim_v
        self._n_tokens = sum(segment.n_tokens for segment in segments)
        self._slots = builder.input_1d(ggml.I64, self._n_tokens)
        self._single_rows = np.array(_rows(segments, chunks=False), np.int64)
        n_single = len(self._single_rows)
        self._elements = builder.input_1d(ggml.I64, n_single * self._channels) if n_single else None
        self._single_ids = builder.input_1d(ggml.I32, n_single) if 0 < n_single < self._n_tokens else None
        self._parts: list[list[_Part]] = []
        self._copies: list[tuple[int, Span]] = []
        self._last_start: list[int | None] = [None] * len(segments)
        row = 0
        for segment in segments:
            self._parts.append(self._make_parts(segment, row))
            if segment.n_tokens >= _COPY_TOKENS:
                offset = row
                for span in segment.writes:
                    self._copies.append((offset, span))
                    offset += span.n_slots
            row += segment.n_tokens

    def _make_parts(self, segment: Segment, row: int) -> list[_Part]:
        if segment.n_tokens < _COPY_TOKENS:
            n_columns = len(segment.keys.positions)
            mask = self._b.input_2d(ggml.F32, n_columns, self._mask_rows(segment.n_tokens))
            return [_Part(row, segment.n_tokens, segment.keys.spans, mask)]
        parts = []
        for offset in range(0, segment.n_tokens, _PART):
            n_tokens = min(_PART, segment.n_tokens - offset)
            n_columns = _visible_columns(segment.keys, segment.start + offset + n_tokens)
            spans = _first_columns(segment.keys.spans, n_columns)
            mask = self._b.input_2d(ggml.F32, n_columns, self._mask_rows(n_tokens))
            parts.append(_Part(row + offset, n_tokens, spans, mask))
        return parts

    def _mask_rows(self, n_tokens: int) -> int:
        # ggml's softmax divides rows ne[1] among threads: one query alone gets a row for each of its G heads.
        return self._group_size if n_tokens == 1 else n_tokens

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """See AttentionOps.store."""
        b, pool = self._b, self._pool
        v_pool = pool.v[layer]
        b.expand(ggml.set_rows(b.context, pool.k[layer], ggml.permute(b.context, k, 0, 2, 1, 3), self._slots.tensor))
        for row, span in self._copies:
            columns = b.columns(v, row, span.n_slots)
            target = ggml.view_2d(
                b.context, v_pool, span.n_slots, self._channels, ggml.head(v_pool).nb[1], span.first_slot * 2
            )
            b.expand(ggml.cpy(b.context, ggml.transpose(b.context, columns), target))
        if self._elements is not None:
            singles = v if self._single_ids is None else ggml.get_rows(b.context, v, self._single_ids.tensor)
            n_elements = self._channels * len(self._single_rows)
            elements = ggml.reshape_2d(b.context, v_pool, 1, pool.stride * self._channels)
            values = ggml.reshape_2d(b.context, singles, 1, n_elements)
            b.expand(ggml.set_rows(b.context, elements, values, self._elements.tensor))

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """See AttentionOps.attend."""
        b = self._b
        head_dim, n_head = plan.head_dim_v, plan.n_head
        parts = [part for segment_parts in self._parts for part in segment_parts]
        row_bytes = head_dim * n_head * 4
        if len(parts) == 1 and parts[0].n_tokens == 1:
            return int(ggml.reshape_2d(b.context, self._attend_part(layer, plan, q, parts[0]), head_dim * n_head, 1))
        total = q
        for part in parts:
            out = self._attend_part(layer, plan, q, part)
            if part.n_tokens == 1:
                out = ggml.reshape_2d(b.context, out, head_dim * n_head, 1)
                strides = (row_bytes, row_bytes, row_bytes)
            else:
                out = ggml.reshape_3d(b.context, out, head_dim, part.n_tokens, n_head)
                out = ggml.permute(b.context, out, 0, 2, 1, 3)
                strides = (head_dim * 4, row_bytes, row_bytes * self._n_tokens)
            # The results of a part replace its queries, which nothing reads any more.
            total = ggml.set_inplace(b.context, total, out, *strides, part.row * row_bytes)
            b.expand(total)
        return int(ggml.reshape_2d(b.context, total, head_dim * n_head, self._n_tokens))

    def _attend_part(self, layer: int, plan: Attention, q: int, part: _Part) -> int:
        """Output of one part, [D, t*G, HK]."""
        b = self._b
        n_head, n_head_kv, t = plan.n_head, plan.n_head_kv, part.n_tokens
        d_bytes = plan.head_dim_k * 4
        n_queries = t * self._group_size
        if t == 1:
            offset = part.row * n_head * d_bytes
            queries = ggml.view_3d(
                b.context, q, plan.head_dim_k, n_queries, n_head_kv, d_bytes, n_queries * d_bytes, offset
            )
        else:
            rows = ggml.view_3d(
                b.context, q, plan.head_dim_k, n_head, t, d_bytes, n_head * d_bytes, part.row * n_head * d_bytes
            )
            queries = ggml.cont_3d(
                b.context, ggml.permute(b.context, rows, 0, 2, 1, 3), plan.head_dim_k, n_queries, n_head_kv
            )
        scores = self._scores(layer, plan, queries, part.spans)
        n_columns = sum(span.n_slots for span in part.spans)
        if t > 1:
            scores = ggml.reshape_3d(b.context, scores, n_columns, t, n_head)
        scores = ggml.soft_max_ext(b.context, scores, part.mask.tensor, plan.scale, 0.0)
        if t > 1:
            scores = ggml.reshape_3d(b.context, scores, n_columns, n_queries, n_head_kv)
        return self._values(layer, plan, scores, part.spans)

    def _scores(self, layer: int, plan: Attention, queries: int, spans: tuple[Span, ...]) -> int:
        """K x q over all spans: [n, t*G, HK]."""
        context, pool_k = self._b.context, self._pool.k[layer]
        nb = ggml.head(pool_k).nb
        scores = None
        for span in spans:
            keys = ggml.view_3d(
                context, pool_k, plan.head_dim_k, span.n_slots, plan.n_head_kv, nb[1], nb[2], span.first_slot * nb[1]
            )
            part = ggml.mul_mat(context, keys, queries)
            scores = part if scores is None else ggml.concat(context, scores, part, 0)
        assert scores is not None
        return int(scores)

    def _values(self, layer: int, plan: Attention, scores: int, spans: tuple[Span, ...]) -> int:
        """V x probabilities, added over all spans: [D, t*G, HK]."""
        context, pool_v = self._b.context, self._pool.v[layer]
        row, score = ggml.head(pool_v).nb[1], ggml.head(scores)
        head_dim = plan.head_dim_v
        out, column = None, 0
        for span in spans:
            values = ggml.view_3d(
                context, pool_v, span.n_slots, head_dim, plan.n_head_kv, row, row * head_dim, span.first_slot * 2
            )
            part = ggml.view_3d(
                context, scores, span.n_slots, score.ne[1], score.ne[2], score.nb[1], score.nb[2], column * 4
            )
            product = ggml.mul_mat(context, values, scores if len(spans) == 1 else part)
            out = product if out is None else ggml.add(context, out, product)
            column += span.n_slots
        assert out is not None
        return int(out)

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        slots = _slots(segments)
        self._slots.array[:] = slots
        if self._elements is not None:
            offsets = np.arange(self._channels, dtype=np.int64) * self._pool.stride
            np.add(slots[self._single_rows, None], offsets, out=self._elements.array.reshape(-1, self._channels))
        if self._single_ids is not None:
            self._single_ids.array[:] = self._single_rows
        for number, (segment, parts) in enumerate(zip(segments, self._parts, strict=True)):
            if segment.n_tokens == 1 and segment.keys.ordered and self._last_start[number] == segment.start - 1:
                parts[0].mask.array[:, segment.start] = 0
            else:
                position = segment.start
                for part in parts:
                    _fill_mask(part.mask.array, segment.keys, position, part.n_tokens)
                    position += part.n_tokens
            self._last_start[number] = segment.start if segment.n_tokens == 1 else None


class FlashAttention:
    """ggml's flash attention over one masked stretch per sequence, over KvLayout.ROWS."""

    def __init__(self, builder: GraphBuilder, pool: KvPool, segments: Sequence[Segment]) -> None:
        self._b = builder
        self._pool = pool
        self._n_tokens = sum(segment.n_tokens for segment in segments)
        self._slots = builder.input_1d(ggml.I64, self._n_tokens)
        self._parts: list[_Part] = []
        row = 0
        for segment in segments:
            mask = builder.input_2d(ggml.F16, len(segment.keys.positions), segment.n_tokens)
            self._parts.append(_Part(row, segment.n_tokens, segment.keys.spans, mask))
            row += segment.n_tokens

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """See AttentionOps.store."""
        b = self._b
        for target, source, width in (
            (self._pool.k[layer], k, plan.head_dim_k * plan.n_head_kv),
            (self._pool.v[layer], v, plan.head_dim_v * plan.n_head_kv),
        ):
            rows = ggml.reshape_2d(b.context, source, width, self._n_tokens)
            b.expand(ggml.set_rows(b.context, target, rows, self._slots.tensor))

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """See AttentionOps.attend."""
        context = self._b.context
        outputs = None
        for part in self._parts:
            (span,) = part.spans
            nb = ggml.head(q).nb
            rows = ggml.view_3d(context, q, plan.head_dim_k, plan.n_head, part.n_tokens, nb[1], nb[2], part.row * nb[2])
            keys = self._stretch(self._pool.k[layer], plan.head_dim_k, plan.n_head_kv, span)
            values = self._stretch(self._pool.v[layer], plan.head_dim_v, plan.n_head_kv, span)
            queries = ggml.permute(context, rows, 0, 2, 1, 3)
            out = ggml.flash_attn_ext(context, queries, keys, values, part.mask.tensor, plan.scale, 0.0, 0.0)
            ggml.prec_set_acc(out, ggml.PREC_F32)
            out = ggml.reshape_2d(context, out, plan.head_dim_v * plan.n_head, part.n_tokens)
            outputs = out if outputs is None else ggml.concat(context, outputs, out, 1)
        assert outputs is not None
        return int(outputs)

    def _stretch(self, tensor: int, head_dim: int, n_head_kv: int, span: Span) -> int:
        row = ggml.head(tensor).nb[1]
        return int(
            ggml.view_3d(
                self._b.context, tensor, head_dim, span.n_slots, n_head_kv, row, head_dim * 2, span.first_slot * row
            )
        )

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        self._slots.array[:] = _slots(segments)
        for segment, part in zip(segments, self._parts, strict=True):
            _fill_mask(part.mask.array, segment.keys, segment.start, segment.n_tokens)


def _slots(segments: Sequence[Segment]) -> NDArray[np.int64]:
    """Slots of the batch's tokens, in order: int64 [T]."""
    return np.concatenate(
        [np.arange(s.first_slot, s.first_slot + s.n_slots) for segment in segments for s in segment.writes]
    )


def _rows(segments: Sequence[Segment], *, chunks: bool) -> list[int]:
    """Rows of the batch that belong to chunks, or to everything shorter."""
    rows: list[int] = []
    row = 0
    for segment in segments:
        if (segment.n_tokens >= _COPY_TOKENS) == chunks:
            rows.extend(range(row, row + segment.n_tokens))
        row += segment.n_tokens
    return rows


def _visible_columns(keys: KeyView, n_positions: int) -> int:
    """Columns up to the last one that holds a position below n_positions, rounded up to 16."""
    visible = n_positions if keys.ordered else int(np.flatnonzero(keys.positions < n_positions)[-1]) + 1
    return min(-(-visible // 16) * 16, len(keys.positions))


def _first_columns(spans: tuple[Span, ...], n_columns: int) -> tuple[Span, ...]:
    kept = []
    for span in spans:
        if n_columns <= 0:
            break
        kept.append(Span(span.first_slot, min(span.n_slots, n_columns)))
        n_columns -= span.n_slots
    return tuple(kept)


def _fill_mask(mask: NDArray[Any], keys: KeyView, start: int, n_tokens: int) -> None:
    """0 where query `start + row` sees a column, minus infinity elsewhere; mask is [rows, columns]."""
    positions = keys.positions[: mask.shape[1]]
    if n_tokens == 1:
        mask[:] = np.where(positions <= start, 0, -np.inf)
        return
    first = min(start, mask.shape[1]) if keys.ordered else 0
    mask[:, :first] = 0
    queries = np.arange(start, start + n_tokens, dtype=np.int32)
    mask[:, first:] = np.where(positions[None, first:] <= queries[:, None], 0, -np.inf)
