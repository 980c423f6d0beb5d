"""The forward graph of a decoder-only transformer, built from a ModelPlan and nothing else about the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine import ggml
from engine.attention import AttentionOps, make_attention
from engine.attention_choice import AttentionChoice
from engine.batch import Batch
from engine.blocks import BLOCK_SIZE
from engine.graph_builder import GraphBuilder, Input
from engine.kv_pool import KvLayout, KvPool
from engine.packed_attention import QUERY_BLOCK
from engine.plan import Attention, FeedForward, Linear, ModelPlan, Norm
from engine.weights import Weights


@dataclass(frozen=True)
class ForwardGraph:
    """One built graph and the inputs a step writes. T tokens, R rows whose logits are wanted.

    tokens, positions: int32 [T]. output_rows: int32 [R], None when R = 0. attention: one per KV group.
    logits: tensor [vocabulary, R], None when R = 0.
    """

    builder: GraphBuilder
    tokens: Input
    positions: Input
    output_rows: Input | None
    attention: tuple[AttentionOps, ...]
    logits: int | None

    def fill(self, batch: Batch) -> None:
        """Write a step's data into the inputs. The batch has the shape the graph was built for."""
        self.tokens.array[:] = batch.tokens
        self.positions.array[:] = batch.positions
        if self.output_rows is not None:
            self.output_rows.array[:] = batch.output_rows
        for attention, segments in zip(self.attention, batch.groups, strict=True):
            attention.fill(segments)


def max_nodes(plan: ModelPlan, layout: KvLayout, n_sequences: int, n_tokens: int) -> int:
    """Room that the graph of a batch can need at most, in tensors: views and inputs included."""
    per_part = 32 + 8 * layout.reading.max_spans
    n_parts = n_sequences + (n_tokens // QUERY_BLOCK if layout is KvLayout.PACKED else 0)
    writes = 4 * (n_tokens // BLOCK_SIZE + 2 * n_sequences)  # V is copied span by span, at worst block by block
    return (len(plan.layers) + 1) * (80 + per_part * n_parts + writes)


def build_graph(plan: ModelPlan, weights: Weights, pool: KvPool, batch: Batch, choice: AttentionChoice) -> ForwardGraph:
    """Build the graph for batches shaped like `batch`. It is neither allocated nor run here."""
    n_sequences = max(map(len, batch.groups))
    builder = GraphBuilder(max_nodes=max_nodes(plan, pool.layout, n_sequences, len(batch.tokens)))
    n_tokens = len(batch.tokens)
    tokens = builder.input_1d(ggml.I32, n_tokens)
    positions = builder.input_1d(ggml.I32, n_tokens)
    output_rows = builder.input_1d(ggml.I32, len(batch.output_rows)) if batch.output_rows else None
    attention = tuple(
        make_attention(builder, pool, plan.layers[group.layers[0]].attention, segments, choice)
        for group, segments in zip(plan.kv_groups, batch.groups, strict=True)
    )
    stream = _Stream(plan, weights, builder, positions, attention)
    logits = stream.run(tokens, output_rows, n_tokens)
    return ForwardGraph(builder, tokens, positions, output_rows, attention, logits)


class _Stream:
    """Adds the layers to the graph, in the order in which llama.cpp computes them, so that results are equal."""

    def __init__(
        self,
        plan: ModelPlan,
        weights: Weights,
        builder: GraphBuilder,
        positions: Input,
        attention: Sequence[AttentionOps],
    ) -> None:
        self.plan = plan
        self.weights = weights
        self.b = builder
        self.context = builder.context
        self.positions = positions
        self.attention = attention

    def run(self, tokens: Input, output_rows: Input | None, n_tokens: int) -> int | None:
        plan, context = self.plan, self.context
        x = ggml.get_rows(context, self.weights.embedding, tokens.tensor)
        for index, layer in enumerate(plan.layers):
            is_last = index == len(plan.layers) - 1
            normed = self.norm(x, layer.attention_norm)
            attended = self.attend(index, layer.attention, normed, n_tokens, only_store=is_last and output_rows is None)
            if attended is None:
                return None
            if is_last and output_rows is not None and ggml.head(output_rows.tensor).ne[0] < n_tokens:
                attended = ggml.get_rows(context, attended, output_rows.tensor)
                x = ggml.get_rows(context, x, output_rows.tensor)
            x = ggml.add(context, attended, x)
            x = ggml.add(context, self.feed_forward(self.norm(x, layer.feed_forward_norm), layer.feed_forward), x)
        logits = self.linear(self.norm(x, plan.output_norm), plan.output, weight=self.weights.output)
        ggml.set_output(logits)
        self.b.expand(logits)
        return logits

    def attend(self, index: int, plan: Attention, x: int, n_tokens: int, *, only_store: bool) -> int | None:
        """Attention of one layer, [embedding, T]; None when only K and V are wanted."""
        q, k, v = self.project(x, plan, n_tokens)
        if not only_store:
            self.b.expand(q)
        self.b.expand(v)
        self.b.expand(k)
        ops = self.attention[plan.kv_group]
        ops.store(index, plan, k, v)
        if only_store:
            return None
        return self.linear(ops.attend(index, plan, q), plan.output)

    def project(self, x: int, plan: Attention, n_tokens: int) -> tuple[int, int, int]:
        """Queries [D, H, T] and keys [D, HK, T], normed and turned, and values [D*HK, T] of one layer."""
        context, head_dim = self.context, plan.head_dim_k
        stacked = self.weights.stacked((plan.q, plan.k, plan.v))
        if stacked is None:
            q = ggml.reshape_3d(context, self.linear(x, plan.q), head_dim, plan.n_head, n_tokens)
            k = ggml.reshape_3d(context, self.linear(x, plan.k), head_dim, plan.n_head_kv, n_tokens)
            return self.turn(q, plan, plan.q_norm), self.turn(k, plan, plan.k_norm), self.linear(x, plan.v)
        rows = ggml.mul_mat(context, stacked, x)
        row_bytes = ggml.head(rows).nb[1]

        def part(tensor: int, n: int, n_head: int, first: int) -> int:
            """[n, n_head, T]: so many vectors of each token's row, from element `first` on."""
            view: int = ggml.view_3d(context, tensor, n, n_head, n_tokens, n * 4, row_bytes, first * 4)
            return view

        v = part(rows, plan.v.n_out, 1, plan.q.n_out + plan.k.n_out)
        v = ggml.reshape_2d(context, v if n_tokens == 1 else ggml.cont(context, v), plan.v.n_out, n_tokens)
        v = self.biased(v, plan.v)
        if n_tokens == 1 and not (plan.q_norm or plan.k_norm or plan.q.bias or plan.k.bias):
            both = self.turn(part(rows, head_dim, plan.n_head + plan.n_head_kv, 0), plan, None)
            return part(both, head_dim, plan.n_head, 0), part(both, head_dim, plan.n_head_kv, plan.q.n_out), v
        q = self.biased(part(rows, head_dim, plan.n_head, 0), plan.q)
        k = self.biased(part(rows, head_dim, plan.n_head_kv, plan.q.n_out), plan.k)
        return self.turn(q, plan, plan.q_norm), self.turn(k, plan, plan.k_norm), v

    def feed_forward(self, x: int, plan: FeedForward) -> int:
        """SwiGLU (arXiv 2002.05202): down(silu(gate x) * up x)."""
        stacked = self.weights.stacked((plan.gate, plan.up))
        if stacked is not None:
            hidden = ggml.swiglu(self.context, ggml.mul_mat(self.context, stacked, x))
        else:
            hidden = ggml.swiglu_split(self.context, self.linear(x, plan.gate), self.linear(x, plan.up))
        return self.linear(hidden, plan.down)

    def linear(self, x: int, plan: Linear, *, weight: int | None = None) -> int:
        return self.biased(ggml.mul_mat(self.context, weight or self.weights[plan.weight], x), plan)

    def biased(self, y: int, plan: Linear) -> int:
        """y plus the bias, if there is one; y may be split into heads."""
        if plan.bias is None:
            return y
        bias = self.weights[plan.bias]
        ne = ggml.head(y).ne
        if ne[0] != plan.n_out:
            bias = ggml.reshape_2d(self.context, bias, ne[0], ne[1])
        return int(ggml.add(self.context, y, bias))

    def norm(self, x: int, plan: Norm) -> int:
        """RMS norm (arXiv 1910.07467)."""
        y = ggml.rms_norm(self.context, x, self.plan.norm_epsilon)
        y = ggml.mul(self.context, y, self.weights[plan.weight])
        if plan.bias is not None:
            y = ggml.add(self.context, y, self.weights[plan.bias])
        return int(y)

    def turn(self, x: int, plan: Attention, norm: Norm | None) -> int:
        """Rotary position embedding (arXiv 2104.09864), with YaRN (arXiv 2309.00071) where the plan says so, of the
        vectors x [D, n, T], after a norm of each if there is one.
        """
        if norm is not None:
            x = self.norm(x, norm)
        rope = plan.rope
        factors = self.weights[rope.factors] if rope.factors else None
        turned: int = ggml.rope_ext(
            self.context,
            x,
            self.positions.tensor,
            factors,
            rope.n_dims,
            rope.mode,
            rope.n_ctx_orig,
            rope.freq_base,
            rope.freq_scale,
            rope.ext_factor,
            rope.attn_factor,
            rope.beta_fast,
            rope.beta_slow,
        )
        return turned
