"""Runs forward passes: keeps the latest graphs, builds another when a batch has a shape that none of them has."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine import ggml
from engine.attention import segment_shape
from engine.attention_choice import AttentionChoice
from engine.attention_inputs import SegmentShape
from engine.batch import Batch
from engine.blocks import BlockCopy
from engine.devices import Device
from engine.executor import Program, make_executor
from engine.graph import ForwardGraph, build_graph, max_nodes
from engine.graph_builder import GraphBuilder
from engine.interrupt import Interrupt
from engine.kv_pool import KvPool
from engine.plan import ModelPlan
from engine.weights import Weights

BatchShape = tuple[tuple[tuple[SegmentShape, ...], ...], int]

_KEPT_BYTES = 64 * 2**20
"""Memory that live graphs may hold when another one is built. Scores grow with the context: after 8,000 tokens, a chunk
of 55 takes 59 MiB in a model with 32 heads."""


class _Live(NamedTuple):
    """A graph that is ready to run. output: where its logits are read, [R, vocabulary]."""

    graph: ForwardGraph
    program: Program
    output: NDArray[np.float32]


class Forward:
    """Owns the executor and the live graphs of one loaded model. interrupt: stops `run`."""

    def __init__(
        self,
        plan: ModelPlan,
        weights: Weights,
        pool: KvPool,
        device: Device,
        *,
        n_threads: int,
        max_sequences: int,
        max_tokens: int,
        choice: AttentionChoice,
    ) -> None:
        """Open the device with `n_threads` CPU threads, for batches of up to so many sequences and tokens.

        choice: of attention on the CPU. Raises DeviceError.
        """
        self._plan = plan
        self._weights = weights
        self._pool = pool
        self._choice = choice
        n_nodes = max_nodes(plan, pool.layout, max_sequences, max_tokens)
        self._executor = make_executor(device, n_threads=n_threads, max_nodes=n_nodes)
        self._copies_per_graph = n_nodes // _nodes_of_copies(plan, 1)
        self._live: OrderedDict[BatchShape, _Live] = OrderedDict()
        """By shape, the one used last at the end."""
        self.interrupt = Interrupt()

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        """Compute one batch: K and V go to the pool, logits come back as float32 [R, vocabulary].

        None when the batch wants no logits. The array is the graph's own memory: it is valid until the next call.
        Raises MemoryLimitError when the device has no room for the graph's buffers, and StepInterrupted; the slots of
        the batch may have been written then.
        """
        live = self._graph_for(batch)
        live.graph.fill(batch)
        self._executor.run(live.program, self.interrupt)
        logits = live.graph.logits
        if logits is None:
            return None
        if not self._executor.reads_in_place:
            ggml.backend_tensor_get(logits, live.output.ctypes.data, 0, live.output.nbytes)
        return live.output

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy K and V of whole blocks, in order."""
        if not copies:
            return
        self._make_room()
        for first in range(0, len(copies), self._copies_per_graph):
            together = copies[first : first + self._copies_per_graph]
            builder = GraphBuilder(max_nodes=_nodes_of_copies(self._plan, len(together)))
            self._pool.add_copies(builder.context, builder.graph, together)
            program = self._load(builder, is_decode=False)
            try:
                self._executor.run(program)
            finally:
                self._executor.unload(program)
                builder.close()

    def _graph_for(self, batch: Batch) -> _Live:
        segments = tuple(tuple(segment_shape(s, self._pool.layout) for s in group) for group in batch.groups)
        shape = (segments, len(batch.output_rows))
        live = self._live.get(shape)
        if live is None:
            self._make_room()
            graph = build_graph(self._plan, self._weights, self._pool, batch, self._choice)
            program = self._load(graph.builder, is_decode=len(batch.tokens) == 1)
            graph.builder.bind_inputs()
            live = self._live[shape] = _Live(graph, program, self._output_array(graph.logits, len(batch.output_rows)))
        else:
            self._live.move_to_end(shape)
        return live

    def _load(self, builder: GraphBuilder, *, is_decode: bool) -> Program:
        try:
            return self._executor.load(builder.graph, is_decode=is_decode)
        except BaseException:
            builder.close()
            raise

    def _output_array(self, logits: int | None, n_rows: int) -> NDArray[np.float32]:
        """Where logits are read, [R, vocabulary]: the tensor's own memory, or a copy if that is out of reach."""
        shape = (n_rows if logits else 0, self._plan.vocabulary)
        if logits is None or not self._executor.reads_in_place:
            return np.empty(shape, np.float32)
        memory = (ctypes.c_char * ggml.nbytes(logits)).from_address(ggml.get_data(logits))
        return np.frombuffer(memory, np.float32).reshape(shape)

    def _make_room(self) -> None:
        """Drop graphs until another one can be loaded: those of long chunks, then those not used for longest."""
        for shape in [shape for shape in self._live if _has_fixed_slots(shape)]:
            self._drop(shape)
        while len(self._live) >= self._executor.max_programs or self._n_bytes() > _KEPT_BYTES:
            self._drop(next(iter(self._live)))

    def _n_bytes(self) -> int:
        return sum(live.program.n_bytes for live in self._live.values())

    def _drop(self, shape: BatchShape) -> None:
        live = self._live.pop(shape)
        self._executor.unload(live.program)
        live.graph.builder.close()

    def close(self) -> None:
        """Free the graphs and the executor."""
        for shape in list(self._live):
            self._drop(shape)
        self._executor.close()


def _has_fixed_slots(shape: BatchShape) -> bool:
    """Whether a graph serves no tokens but those in the same slots."""
    segments, _ = shape
    return any(segment.writes for group in segments for segment in group)


def _nodes_of_copies(plan: ModelPlan, n_copies: int) -> int:
    """Room for a graph of copies, in tensors: for K and for V of a layer, the pool's, and two views and a copy each."""
    return (len(plan.layers) + 1) * (4 + 6 * n_copies)
