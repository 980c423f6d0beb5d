"""Attention of one part of a batch, composed of matrix products or of flash attention, over KvLayout.PACKED.

Decodes and short chunks pack the G query heads of a KV head into G columns of one matrix, so that the F16 matrix
kernels run and every key and value is read once per group:

    scores [n, t*G, HK] = K [D, n, HK] x q [D, t*G, HK]
    out    [D, t*G, HK] = V [n, D, HK] x softmax(scores)

A part that lies in several spans has its scores computed span by span, one softmax over all, and its values added span
by span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine import ggml
from engine.attention_choice import FLASH_TILE, AttentionChoice
from engine.attention_inputs import Part, SharedPart
from engine.batch import Span
from engine.blocks import BLOCK_SIZE
from engine.graph_builder import GraphBuilder, Input
from engine.kv_pool import KvPool
from engine.plan import Attention


class PackedProducts:
    """Adds the attention of parts to a graph; shapes as in engine/attention.py."""

    def __init__(self, builder: GraphBuilder, pool: KvPool, plan: Attention, choice: AttentionChoice) -> None:
        self._b = builder
        self._pool = pool
        self._choice = choice
        self._channels = plan.n_head_kv * plan.head_dim_v
        self._zeros: Input | None = None

    def mask_rows(self, plan: Attention, n_tokens: int, n_columns: int) -> int:
        """Rows of the mask of a part: ggml's softmax divides ne[1] among threads, so one query has several alike."""
        if n_tokens > 1:
            return n_tokens
        return plan.n_head // plan.n_head_kv if self._is_packed(1, n_columns) else plan.n_head

    def attend(self, layer: int, plan: Attention, rows: int, part: Part) -> int:
        """Attention of a part: rows [D, H, t] of the queries.

        The result is [D, t*G, HK], of which [D, 1, H] is a case, or [D, H, t] from flash attention.
        """
        if part.is_flash:
            return self._flash(layer, plan, ggml.permute(self._b.context, rows, 0, 2, 1, 3), part)
        return self._products(layer, plan, rows, part)

    def attend_shared(self, layer: int, plan: Attention, rows: int, part: SharedPart) -> int:
        """Attention of decodes that share a prefix: rows [D, H, m] of the queries, result [D, m*G, HK].

        Cascade attention: the prefix is multiplied once with the queries of all, the rests one by one, and one softmax
        runs over both. Scores and results are written side by side, where they belong.
        """
        context, m, n_heads = self._b.context, part.n_tokens, plan.n_head_kv
        group = plan.n_head // n_heads
        columns, scores = m * group, part.scores.tensor
        by_head = ggml.permute(context, rows, 0, 2, 1, 3)
        queries = ggml.cont_3d(context, by_head, plan.head_dim_k, columns, n_heads)
        row_bytes = part.n_columns * 4

        def stretch(tensor: int, first: int, n: int) -> int:
            """Scores of all queries for so many slots: [n, m*G, HK]."""
            nb2 = row_bytes * columns
            return int(ggml.view_3d(context, tensor, n, columns, n_heads, row_bytes, nb2, first * 4))

        def own_stretch(tensor: int, i: int, first: int, n: int) -> int:
            """The same for the queries of one segment: [n, G, HK]."""
            nb2, offset = row_bytes * columns, row_bytes * i + first * 4
            return int(ggml.view_3d(context, tensor, n, group, n_heads, row_bytes * m, nb2, offset))

        for first, span in _places(part.prefix, 0):
            product = ggml.mul_mat(context, self.keys(layer, plan, span), queries)
            self._b.expand(ggml.cpy(context, product, stretch(scores, first, span.n_slots)))
        for i, rest in enumerate(part.rests):
            nb = ggml.head(rows).nb
            own = ggml.view_3d(context, rows, plan.head_dim_k, group, n_heads, nb[1], nb[1] * group, i * nb[2])
            for first, span in _places(rest, part.n_prefix):
                product = ggml.mul_mat(context, self.keys(layer, plan, span), own)
                self._b.expand(ggml.cpy(context, product, own_stretch(scores, i, first, span.n_slots)))
        scores = ggml.reshape_3d(context, scores, part.n_columns, columns, n_heads)
        scores = ggml.soft_max_ext_inplace(context, scores, part.mask.tensor, plan.scale, 0.0)
        out = None
        for first, span in _places(part.prefix, 0):
            product = ggml.mul_mat(context, self.values(layer, plan, span), stretch(scores, first, span.n_slots))
            out = product if out is None else ggml.add(context, out, product)
        assert out is not None
        vector_bytes = plan.head_dim_v * 4
        for i, rest in enumerate(part.rests):
            for first, span in _places(rest, part.n_prefix):
                probabilities = own_stretch(scores, i, first, span.n_slots)
                product = ggml.mul_mat(context, self.values(layer, plan, span), probabilities)
                strides = (vector_bytes * m, vector_bytes * columns, vector_bytes * columns * n_heads)
                out = ggml.acc_inplace(context, out, product, *strides, vector_bytes * i)
        return int(out)

    def _is_packed(self, n_tokens: int, n_columns: int) -> bool:
        return n_tokens > 1 or n_columns > self._choice.unpacked_columns

    def _products(self, layer: int, plan: Attention, rows: int, part: Part) -> int:
        context, t, n = self._b.context, part.n_tokens, part.n_columns
        n_batches = plan.n_head_kv if self._is_packed(t, n) else plan.n_head
        n_queries = t * plan.n_head // n_batches
        if t == 1:
            queries = ggml.reshape_3d(context, rows, plan.head_dim_k, n_queries, n_batches)
        else:
            by_head = ggml.permute(context, rows, 0, 2, 1, 3)
            queries = ggml.cont_3d(context, by_head, plan.head_dim_k, n_queries, n_batches)
        scores = None
        for span in part.spans:
            keys = self.keys(layer, plan, span)
            if n >= self._choice.ahead_columns:
                self._read_ahead(keys, plan, span)
            product = ggml.mul_mat(context, keys, queries)
            scores = product if scores is None else ggml.concat(context, scores, product, 0)
        mask_rows = part.mask.shape[0]
        scores = ggml.reshape_3d(context, scores, n, mask_rows, t * plan.n_head // mask_rows)
        scores = ggml.soft_max_ext_inplace(context, scores, part.mask.tensor, plan.scale, 0.0)
        scores = ggml.reshape_3d(context, scores, n, n_queries, n_batches)
        out, column = None, 0
        for span in part.spans:
            probabilities = scores
            if len(part.spans) > 1:
                probabilities = ggml.view_3d(
                    context, scores, span.n_slots, n_queries, n_batches, n * 4, n * 4 * n_queries, column * 4
                )
            product = ggml.mul_mat(context, self.values(layer, plan, span), probabilities)
            out = product if out is None else ggml.add(context, out, product)
            column += span.n_slots
        assert out is not None
        return int(out)

    def _read_ahead(self, keys: int, plan: Attention, span: Span) -> None:
        """Bring keys [D, n, HK] into the caches: multiply them with zeros, a block's keys of a head in one row.

        Their bytes are taken for F32, which takes no conversion; the results mean nothing.
        """
        context, nb = self._b.context, ggml.head(keys).nb
        n_blocks = span.n_slots // BLOCK_SIZE
        blocks = ggml.view_3d(
            context, keys, plan.head_dim_k * BLOCK_SIZE, n_blocks, plan.n_head_kv, nb[1] * BLOCK_SIZE, nb[2], 0
        )
        floats = ggml.reinterpret(context, blocks, ggml.F32, 4)
        length = ggml.head(floats).ne[0]
        if self._zeros is None:
            self._zeros = self._b.input_2d(ggml.F32, length, plan.n_head_kv)
        zeros = ggml.reshape_3d(context, self._zeros.tensor, length, 1, plan.n_head_kv)
        self._b.expand(ggml.mul_mat(context, floats, zeros))

    def _flash(self, layer: int, plan: Attention, queries: int, part: Part) -> int:
        """Flash attention over gathered keys and values: queries [D, t, H], result [D, H, t].

        ggml's tiled kernel wants both as one tensor of one type, values by token, and is fastest with F32.
        """
        context = self._b.context
        keys, values = None, None
        for span in part.spans:
            k = ggml.cast(context, self.keys(layer, plan, span), ggml.F32)
            v = ggml.cast(context, ggml.transpose(context, self.value_columns(layer, span)), ggml.F32)
            keys = k if keys is None else ggml.concat(context, keys, k, 1)
            values = v if values is None else ggml.concat(context, values, v, 1)
        head_bytes = plan.head_dim_v * 4
        values = ggml.view_3d(
            context, values, plan.head_dim_v, part.n_columns, plan.n_head_kv, self._channels * 4, head_bytes, 0
        )
        out: int = ggml.flash_attn_ext(context, queries, keys, values, part.mask.tensor, plan.scale, 0.0, 0.0)
        return out

    def keys(self, layer: int, plan: Attention, span: Span) -> int:
        """Keys of consecutive slots: [D, n, HK]."""
        tensor = self._pool.k[layer]
        nb = ggml.head(tensor).nb
        offset = span.first_slot * nb[1]
        return int(
            ggml.view_3d(self._b.context, tensor, plan.head_dim_k, span.n_slots, plan.n_head_kv, nb[1], nb[2], offset)
        )

    def values(self, layer: int, plan: Attention, span: Span) -> int:
        """Values of consecutive slots: [n, D, HK]."""
        tensor = self._pool.v[layer]
        nb = ggml.head(tensor).nb
        return int(
            ggml.view_3d(
                self._b.context,
                tensor,
                span.n_slots,
                plan.head_dim_v,
                plan.n_head_kv,
                nb[1],
                nb[1] * plan.head_dim_v,
                span.first_slot * nb[0],
            )
        )

    def value_columns(self, layer: int, span: Span) -> int:
        """The same as one matrix: [n, D*HK]."""
        tensor = self._pool.v[layer]
        nb = ggml.head(tensor).nb
        return int(ggml.view_2d(self._b.context, tensor, span.n_slots, self._channels, nb[1], span.first_slot * nb[0]))

    def fill(self) -> None:
        """Write what does not change from step to step into the graph's inputs."""
        if self._zeros is not None:
            self._zeros.array[:] = 0


def _places(spans: Sequence[Span], first: int) -> Iterator[tuple[int, Span]]:
    """Each span with its first column, the spans side by side from column `first` on."""
    for span in spans:
        yield first, span
        first += span.n_slots


def is_flash(choice: AttentionChoice, n_tokens: int) -> bool:
    """Whether so many tokens of a sequence go through flash attention."""
    return choice.flash and n_tokens >= FLASH_TILE
