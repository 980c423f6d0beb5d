"""Attention composed of matrix products, over KvLayout.PACKED: for the CPU.

Decodes and short chunks pack the G query heads of a KV head into G columns of one matrix, so that the F16 matrix
kernels run and every key and value is read once per group:

    scores [n, t*G, HK] = K [D, n, HK] x q [D, t*G, HK]
    out    [D, t*G, HK] = V [n, D, HK] x softmax(scores)

A packed product costs ggml two barriers per KV head, which a decode over few columns does not earn back: up to
`UNPACKED_COLUMNS` its heads are multiplied one by one.

A sequence in several spans has its scores computed span by span, one softmax over all, and its values added span by
span. Chunks of `FLASH_TOKENS` and more would write large matrices of scores: they gather K and V once, as F32, and
leave the rest to ggml's tiled flash attention, which for fewer queries falls back to slow loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import ggml
from engine.attention_inputs import Part, fill_mask, slots_of
from engine.batch import Segment, Span
from engine.graph_builder import GraphBuilder, Input
from engine.kv_pool import KvPool
from engine.plan import Attention

FLASH_TOKENS = 64
"""Queries per tile of ggml's flash attention (ggml_fa_tile_config::Q)."""

UNPACKED_COLUMNS = 256
"""Columns up to which a decode is faster unpacked: measured on two AVX-512 cores, where 512 were a draw."""

COPY_TOKENS = 16
"""From this many tokens on, V is written by a transposed copy per span; below, element by element, so that
the graph does not depend on the slots and can be used again."""


class PackedAttention:
    """AttentionOps with packed products for decodes and short chunks, and flash attention for long ones."""

    def __init__(self, builder: GraphBuilder, pool: KvPool, plan: Attention, segments: Sequence[Segment]) -> None:
        self._b = builder
        self._pool = pool
        self._n_head = plan.n_head
        self._group_size = plan.n_head // plan.n_head_kv
        self._channels = plan.n_head_kv * plan.head_dim_v
        self._n_tokens = sum(segment.n_tokens for segment in segments)
        self._slots = builder.input_1d(ggml.I64, self._n_tokens)
        self._parts: list[Part] = []
        self._copies: list[tuple[int, Span]] = []
        """Rows of V that are copied as a matrix: the first of them, and the slots they go to."""
        scattered: list[int] = []
        row = 0
        for segment in segments:
            self._parts.append(Part(row, segment.n_tokens, segment.keys.spans, self._new_mask(segment)))
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

    def _new_mask(self, segment: Segment) -> Input:
        n_columns = len(segment.keys.positions)
        if segment.n_tokens >= FLASH_TOKENS:
            return self._b.input_2d(ggml.F16, n_columns, segment.n_tokens)
        # ggml's softmax divides rows ne[1] among threads: one query alone gets a row for each of its heads.
        n_rows = segment.n_tokens
        if n_rows == 1:
            n_rows = self._group_size if n_columns > UNPACKED_COLUMNS else self._n_head
        return self._b.input_2d(ggml.F32, n_columns, n_rows)

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """See AttentionOps.store."""
        b, pool = self._b, self._pool
        v_pool = pool.v[layer]
        b.expand(ggml.set_rows(b.context, pool.k[layer], ggml.permute(b.context, k, 0, 2, 1, 3), self._slots.tensor))
        for row, span in self._copies:
            columns = ggml.transpose(b.context, b.columns(v, row, span.n_slots))
            b.expand(ggml.cpy(b.context, columns, self._v_stretch(v_pool, span)))
        if self._elements is not None:
            rows = v if self._scattered_ids is None else ggml.get_rows(b.context, v, self._scattered_ids.tensor)
            n_elements = self._channels * len(self._scattered)
            elements = ggml.reshape_2d(b.context, v_pool, 1, pool.stride * self._channels)
            values = ggml.reshape_2d(b.context, rows, 1, n_elements)
            b.expand(ggml.set_rows(b.context, elements, values, self._elements.tensor))

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """See AttentionOps.attend."""
        b, width = self._b, plan.head_dim_v * plan.n_head
        if len(self._parts) == 1 and self._is_row_major(self._parts[0]):
            return int(
                ggml.reshape_2d(b.context, self._attend_part(layer, plan, q, self._parts[0]), width, self._n_tokens)
            )
        row_bytes = width * 4
        total = q
        for part in self._parts:
            out = self._attend_part(layer, plan, q, part)
            if self._is_row_major(part):
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

    @staticmethod
    def _is_row_major(part: Part) -> bool:
        """Whether the result of a part has all heads of a token side by side, and not all tokens of a head."""
        return part.n_tokens == 1 or part.n_tokens >= FLASH_TOKENS

    def _attend_part(self, layer: int, plan: Attention, q: int, part: Part) -> int:
        b = self._b
        nb = ggml.head(q).nb
        rows = ggml.view_3d(b.context, q, plan.head_dim_k, plan.n_head, part.n_tokens, nb[1], nb[2], part.row * nb[2])
        if part.n_tokens >= FLASH_TOKENS:
            return self._flash(layer, plan, ggml.permute(b.context, rows, 0, 2, 1, 3), part)
        return self._products(layer, plan, rows, part)

    def _flash(self, layer: int, plan: Attention, queries: int, part: Part) -> int:
        """Flash attention over gathered keys and values: queries [D, t, H], result [D, H, t]."""
        context = self._b.context
        keys, values = None, None
        for span in part.spans:
            k = ggml.cast(context, self._k_stretch(layer, plan, span), ggml.F32)
            v = ggml.cast(context, ggml.transpose(context, self._v_stretch(self._pool.v[layer], span)), ggml.F32)
            keys = k if keys is None else ggml.concat(context, keys, k, 1)
            values = v if values is None else ggml.concat(context, values, v, 1)
        head_bytes = plan.head_dim_v * 4
        values = ggml.view_3d(
            context, values, plan.head_dim_v, part.n_columns, plan.n_head_kv, self._channels * 4, head_bytes, 0
        )
        out: int = ggml.flash_attn_ext(context, queries, keys, values, part.mask.tensor, plan.scale, 0.0, 0.0)
        return out

    def _products(self, layer: int, plan: Attention, rows: int, part: Part) -> int:
        """Matrix products: rows [D, H, t], result [D, t*G, HK], or [D, 1, H] when unpacked."""
        context, t, n = self._b.context, part.n_tokens, part.n_columns
        is_packed = t > 1 or n > UNPACKED_COLUMNS
        n_batches = plan.n_head_kv if is_packed else plan.n_head
        n_queries = t * plan.n_head // n_batches
        if t == 1:
            queries = ggml.reshape_3d(context, rows, plan.head_dim_k, n_queries, n_batches)
        else:
            by_head = ggml.permute(context, rows, 0, 2, 1, 3)
            queries = ggml.cont_3d(context, by_head, plan.head_dim_k, n_queries, n_batches)
        scores = None
        for span in part.spans:
            product = ggml.mul_mat(context, self._k_stretch(layer, plan, span), queries)
            scores = product if scores is None else ggml.concat(context, scores, product, 0)
        mask_rows = part.mask.shape[0]
        scores = ggml.reshape_3d(context, scores, n, mask_rows, t * plan.n_head // mask_rows)
        scores = ggml.soft_max_ext(context, scores, part.mask.tensor, plan.scale, 0.0)
        scores = ggml.reshape_3d(context, scores, n, n_queries, n_batches)
        out, column = None, 0
        for span in part.spans:
            probabilities = scores
            if len(part.spans) > 1:
                probabilities = ggml.view_3d(
                    context, scores, span.n_slots, n_queries, n_batches, n * 4, n * 4 * n_queries, column * 4
                )
            product = ggml.mul_mat(context, self._v_heads(layer, plan, span), probabilities)
            out = product if out is None else ggml.add(context, out, product)
            column += span.n_slots
        assert out is not None
        return int(out)

    def _k_stretch(self, layer: int, plan: Attention, span: Span) -> int:
        """Keys of consecutive slots: [D, n, HK]."""
        tensor = self._pool.k[layer]
        nb = ggml.head(tensor).nb
        stretch: int = ggml.view_3d(
            self._b.context,
            tensor,
            plan.head_dim_k,
            span.n_slots,
            plan.n_head_kv,
            nb[1],
            nb[2],
            span.first_slot * nb[1],
        )
        return stretch

    def _v_stretch(self, tensor: int, span: Span) -> int:
        """Values of consecutive slots, transposed: [n, D*HK]."""
        row = ggml.head(tensor).nb[1]
        stretch: int = ggml.view_2d(self._b.context, tensor, span.n_slots, self._channels, row, span.first_slot * 2)
        return stretch

    def _v_heads(self, layer: int, plan: Attention, span: Span) -> int:
        """The same by head: [n, D, HK]."""
        tensor = self._pool.v[layer]
        row = ggml.head(tensor).nb[1]
        heads: int = ggml.view_3d(
            self._b.context,
            tensor,
            span.n_slots,
            plan.head_dim_v,
            plan.n_head_kv,
            row,
            row * plan.head_dim_v,
            span.first_slot * 2,
        )
        return heads

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        decoded = [_decoded(segment) for segment in segments]
        if all(map(_follows, decoded, self._decoded)):
            # Every sequence goes on by one token in the same run: slots move by one, one more column is visible.
            self._slots.array += 1
            assert self._elements is not None
            self._elements.array += 1
            for segment, part in zip(segments, self._parts, strict=True):
                part.mask.array[:, segment.start] = 0
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
        for segment, part in zip(segments, self._parts, strict=True):
            fill_mask(part.mask.array, segment)


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
