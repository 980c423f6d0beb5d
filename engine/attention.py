"""Attention over the pool: the interface to the graph, and which composition of ggml operations serves a layout.

Shapes in the modules of attention, in ggml's order: D head size, H query heads, HK KV heads, G = H / HK query
heads that share one KV head, T new tokens of the batch, t tokens of one segment, n columns (slots read).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.attention_choice import AttentionChoice
from engine.attention_inputs import SegmentShape
from engine.batch import Segment
from engine.flash_attention import FlashAttention
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvLayout, KvPool
from engine.kv_types import KvTypes
from engine.packed_attention import COPY_TOKENS, PackedAttention
from engine.plan import Attention
from engine.rotated_attention import RotatedAttention


class AttentionOps(Protocol):
    """Writes new K and V to the pool and attends to it, for the layers of one KV group in one graph."""

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """Write k [D, HK, T] and v [D*HK, T], both F32, to the slots of the batch."""

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """Attend with q [D, H, T], after `store`; returns [D*H, T]. May overwrite q."""

    def fill(self, segments: Sequence[Segment]) -> None:
        """Write slots and masks of a step into the graph's inputs."""


def make_attention(
    builder: GraphBuilder, pool: KvPool, plan: Attention, segments: Sequence[Segment], choice: AttentionChoice
) -> AttentionOps:
    """The composition for the pool's layout; `plan` is that of any layer of the group."""
    ops: AttentionOps
    if pool.layout is KvLayout.PACKED:
        ops = PackedAttention(builder, pool, plan, segments, choice)
    else:
        ops = FlashAttention(builder, pool, segments)
    return ops if pool.types == KvTypes() else RotatedAttention(ops, builder, plan, pool.types)


def segment_shape(segment: Segment, layout: KvLayout) -> SegmentShape:
    """The shape of a segment in the composition for `layout`."""
    copies_v = layout is KvLayout.PACKED and segment.n_tokens >= COPY_TOKENS
    shape = SegmentShape(segment.n_tokens, segment.keys.spans, segment.writes if copies_v else ())
    if segment.shared is None:
        return shape
    members, _, prefix, rests = segment.shared
    return shape._replace(members=members, prefix=prefix, rests=tuple(rest.spans for rest in rests))
