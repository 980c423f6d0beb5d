"""Runs forward passes: keeps the last graph, builds another when the shape of the batch changes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine import ggml
from engine.attention import segment_shape
from engine.attention_inputs import SegmentShape
from engine.batch import Batch
from engine.blocks import BlockCopy
from engine.devices import Device, cpu_device
from engine.errors import DeviceError, MemoryLimitError
from engine.graph import ForwardGraph, build_graph, max_nodes
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvPool
from engine.plan import ModelPlan
from engine.weights import Weights

BatchShape = tuple[tuple[tuple[SegmentShape, ...], ...], int]


class Forward:
    """Owns the backends, ggml's scheduler and the live graph of one loaded model.

    Inputs live in host memory on every device; the scheduler copies them over where it must.
    """

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
    ) -> None:
        """Open the device with `n_threads` CPU threads, for batches of up to so many sequences and tokens.

        Raises DeviceError.
        """
        self._plan = plan
        self._weights = weights
        self._pool = pool
        self._backends = _open_backends(device, n_threads)
        handles = (ctypes.c_void_p * len(self._backends))(*self._backends)
        self._scheduler: int = ggml.backend_sched_new(
            handles, None, len(self._backends), max_nodes(plan, pool.layout, max_sequences, max_tokens), False, True
        )
        self._reads_in_place = device.is_host
        self._live: ForwardGraph | None = None
        self._shape: BatchShape | None = None
        self._output = self._output_array(None, 0)

    def run(self, batch: Batch) -> NDArray[np.float32] | None:
        """Compute one batch: K and V go to the pool, logits come back as float32 [R, vocabulary].

        None when the batch wants no logits. The array is overwritten by the next call.
        Raises MemoryLimitError when the device has no room for the graph's buffers.
        """
        graph = self._graph_for(batch)
        graph.fill(batch)
        self._compute(graph.builder)
        if graph.logits is not None and not self._reads_in_place:
            ggml.backend_tensor_get(graph.logits, self._output.ctypes.data, 0, self._output.nbytes)
        return None if graph.logits is None else self._output

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Copy K and V of whole blocks, in order."""
        if not copies:
            return
        self._drop_live()
        for copy in copies:
            builder = GraphBuilder(max_nodes=8 * len(self._plan.layers) + 8)
            self._pool.add_copy(builder.context, builder.graph, copy)
            self._allocate(builder)
            self._compute(builder)
            builder.close()

    def _graph_for(self, batch: Batch) -> ForwardGraph:
        segments = tuple(tuple(segment_shape(s, self._pool.layout) for s in group) for group in batch.groups)
        shape = (segments, len(batch.output_rows))
        if self._live is None or shape != self._shape:
            self._drop_live()
            self._live = build_graph(self._plan, self._weights, self._pool, batch)
            self._allocate(self._live.builder)
            self._live.builder.bind_inputs()
            self._output = self._output_array(self._live.logits, len(batch.output_rows))
            self._shape = shape
        return self._live

    def _allocate(self, builder: GraphBuilder) -> None:
        ggml.backend_sched_reset(self._scheduler)
        if not ggml.backend_sched_alloc_graph(self._scheduler, builder.graph):
            builder.close()
            self._live = self._shape = None
            raise MemoryLimitError("There is no memory for the intermediate results of a step: use a smaller model.")

    def _compute(self, builder: GraphBuilder) -> None:
        status = ggml.backend_sched_graph_compute(self._scheduler, builder.graph)
        if status != ggml.STATUS_SUCCESS:
            raise DeviceError(f"The device failed to compute a step (ggml status {status}): start again.")

    def _output_array(self, logits: int | None, n_rows: int) -> NDArray[np.float32]:
        """Where logits are read, [R, vocabulary]: the tensor's own memory, or a copy if that is out of reach."""
        shape = (n_rows if logits else 0, self._plan.vocabulary)
        if logits is None or not self._reads_in_place:
            return np.empty(shape, np.float32)
        memory = (ctypes.c_char * ggml.nbytes(logits)).from_address(ggml.get_data(logits))
        return np.frombuffer(memory, np.float32).reshape(shape)

    def _drop_live(self) -> None:
        if self._live is not None:
            self._live.builder.close()
        self._live = self._shape = None

    def close(self) -> None:
        """Free the graph, the scheduler and the backends."""
        self._drop_live()
        ggml.backend_sched_free(self._scheduler)
        for backend in self._backends:
            ggml.backend_free(backend)


def _open_backends(device: Device, n_threads: int) -> list[int]:
    """The device's backend, then the CPU's, which takes what the device cannot do."""
    cpu = cpu_device()
    chosen = [device] if device.handle == cpu.handle else [device, cpu]
    backends: list[int] = []
    for item in chosen:
        backend = ggml.backend_dev_init(item.handle, None)
        if not backend:
            for opened in backends:
                ggml.backend_free(opened)
            raise DeviceError(f"{item.name} cannot be used: {item.description}.")
        backends.append(backend)
    registry = ggml.backend_dev_backend_reg(cpu.handle)
    set_n_threads = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)(
        ggml.backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads")
    )
    set_n_threads(backends[-1], n_threads)
    return backends
