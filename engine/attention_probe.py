"""Measures the compositions of attention on this machine, for heads like the model's.

Between two turns of a graph, so much other memory is read that keys and values come from memory, as they do between
two steps of a model: every size has slots of its own, in enough layers to fill any cache, and a turn goes through all
sizes before the next one starts over. In such a short time single turns are disturbed by whatever else runs: of all
turns of a composition the median counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from engine import ggml
from engine.attention_choice import NEVER, AttentionChoice
from engine.batch import Segment
from engine.config import KvType
from engine.devices import Device
from engine.executor import CpuExecutor
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvLayout, KvPool, bytes_per_slot
from engine.packed_attention import QUERY_BLOCK, PackedAttention
from engine.plan import Attention, ModelPlan
from engine.random_pool import lone_segment, random_pool
from engine.tuning import AttentionTimes, ChunkTimes, DecodeTimes
from engine.turns import Effort, take_turns

COLUMNS = (128, 256, 512, 1024, 2048)
"""Slots that the measured decodes read."""

CHUNK = 256
"""Tokens of the measured chunks."""

KNOWN = (0, 1024)
"""Tokens before the measured chunks."""

_DECODES = (
    AttentionChoice(unpacked_columns=NEVER, ahead_columns=NEVER),
    AttentionChoice(unpacked_columns=0, ahead_columns=NEVER),
    AttentionChoice(unpacked_columns=0, ahead_columns=0),
)
"""In the order of the fields of DecodeTimes."""

_CHUNKS = (AttentionChoice(flash=True), AttentionChoice(flash=False))
"""In the order of the fields of ChunkTimes."""

_CACHE_BYTES = 64 * 2**20
"""More than the caches of most processors hold."""

_MAX_LAYERS = 64
"""Layers of the pool at most; only toy models would need more to fill a cache."""

_CHUNK_LAYERS = 1
"""Layers in which chunks are measured: they compute for long on little memory."""

_NODES_PER_PART = 48
"""Room in a graph, in tensors: views included."""


def measure_attention(
    plan: ModelPlan,
    device: Device,
    kv_type: KvType,
    n_threads: int,
    effort: Effort,
    progress: Callable[[float], None],
) -> AttentionTimes:
    """Measure with the KV group that has most layers; `device` is the CPU. Decodes and chunks take the effort each.

    Raises MemoryLimitError when there is no room for some 64 MiB of keys and values.
    """
    group = max(plan.kv_groups, key=lambda group: len(group.layers))
    attention = plan.layers[group.layers[0]].attention
    n_slots = sum(COLUMNS)
    slot_bytes = bytes_per_slot((group,), KvLayout.PACKED.types(kv_type)) // len(group.layers)
    n_layers = min(_MAX_LAYERS, -(-_CACHE_BYTES // (slot_bytes * n_slots)))
    pool = random_pool(group, max(_CHUNK_LAYERS, n_layers), n_slots, device, kv_type)
    executor = CpuExecutor(device, n_threads)
    graphs: list[_AttentionGraph] = []

    def prepare(segment: Segment, choice: AttentionChoice, n_layers: int) -> _AttentionGraph:
        graphs.append(_AttentionGraph(executor, pool, attention, segment, choice, n_layers))
        return graphs[-1]

    def measure(
        segments: Sequence[Segment],
        choices: Sequence[AttentionChoice],
        n_layers: int,
        progress: Callable[[float], None],
    ) -> list[list[float]]:
        """Median seconds of a layer: for each segment, by choice."""
        lanes = [[prepare(segment, choice, n_layers) for segment in segments] for choice in choices]
        turns = [lambda lane=lane: [graph.run() for graph in lane] for lane in lanes]
        times = take_turns(turns, effort, progress)
        by_segment: list[list[float]] = (np.median(times, axis=1).T / n_layers).tolist()
        return by_segment

    try:
        decodes = measure(_decodes(), _DECODES, n_layers, lambda done: progress(done / 2))
        chunks = measure(_chunks(), _CHUNKS, _CHUNK_LAYERS, lambda done: progress((1 + done) / 2))
    finally:
        for graph in graphs:
            graph.close()
        executor.close()
        pool.close()
    return AttentionTimes(
        tuple(DecodeTimes(n, *times) for n, times in zip(COLUMNS, decodes, strict=True)),
        tuple(ChunkTimes(CHUNK, n, *times) for n, times in zip(KNOWN, chunks, strict=True)),
    )


class _AttentionGraph:
    """A graph that is ready to run, of the attention of `n_layers` layers for one segment, and nothing else."""

    def __init__(
        self,
        executor: CpuExecutor,
        pool: KvPool,
        plan: Attention,
        segment: Segment,
        choice: AttentionChoice,
        n_layers: int,
    ) -> None:
        n_parts = -(-segment.n_tokens // QUERY_BLOCK)
        self._executor = executor
        self._builder = builder = GraphBuilder(max_nodes=(n_layers + 1) * n_parts * _NODES_PER_PART)
        attention = PackedAttention(builder, pool, plan, (segment,), choice)
        rows = builder.input_2d(ggml.F32, plan.head_dim_k, plan.n_head * segment.n_tokens)
        queries = ggml.reshape_3d(builder.context, rows.tensor, plan.head_dim_k, plan.n_head, segment.n_tokens)
        for layer in range(n_layers):
            builder.expand(attention.attend(layer, plan, queries))
        self._program = executor.load(builder.graph, is_decode=False)
        builder.bind_inputs()
        rows.array[:] = np.random.default_rng(0).normal(size=rows.shape)
        attention.fill((segment,))

    def run(self) -> float:
        """Compute it; returns the seconds that took."""
        start = time.perf_counter()
        self._executor.run(self._program)
        return time.perf_counter() - start

    def close(self) -> None:
        """Free the graph."""
        self._executor.unload(self._program)
        self._builder.close()


def _decodes() -> list[Segment]:
    """A decode for each number of columns, each in slots of its own."""
    segments = []
    first_slot = 0
    for n in COLUMNS:
        segments.append(lone_segment(first_slot, n - 1, 1))
        first_slot += n
    return segments


def _chunks() -> list[Segment]:
    return [lone_segment(0, n_known, CHUNK) for n_known in KNOWN]
