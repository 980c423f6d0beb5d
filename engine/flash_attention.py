"""ggml's flash attention over one masked stretch of the pool per sequence, over KvLayout.ROWS: for GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from engine import ggml
from engine.attention_inputs import Part, fill_mask, slots_of
from engine.batch import Segment, Span
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvPool
from engine.plan import Attention


class FlashAttention:
    """AttentionOps for devices whose flash attention kernels read K and V where they are."""

    def __init__(self, builder: GraphBuilder, pool: KvPool, segments: Sequence[Segment]) -> None:
        self._b = builder
        self._pool = pool
        self._n_tokens = sum(segment.n_tokens for segment in segments)
        self._slots = builder.input_1d(ggml.I64, self._n_tokens)
        self._parts: list[Part] = []
        row = 0
        for index, segment in enumerate(segments):
            mask = builder.input_2d(ggml.F16, len(segment.keys.positions), segment.n_tokens)
            self._parts.append(Part(index, row, 0, segment.n_tokens, segment.keys.spans, mask, is_flash=True))
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
        nb = ggml.head(q).nb
        outputs = None
        for part in self._parts:
            (span,) = part.spans
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
        """Consecutive slots of K or V, head by head: [D, n, HK]."""
        head = ggml.head(tensor)
        row, head_bytes = head.nb[1], ggml.row_size(head.type, head_dim)
        stretch: int = ggml.view_3d(
            self._b.context, tensor, head_dim, span.n_slots, n_head_kv, row, head_bytes, span.first_slot * row
        )
        return stretch

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        self._slots.array[:] = slots_of(segments)
        for segment, part in zip(segments, self._parts, strict=True):
            fill_mask(part.mask.array, segment)
