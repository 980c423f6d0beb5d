"""Gives the nodes of a built graph memory, and runs it: on the CPU directly, on other devices through ggml's scheduler.

The CPU gets no scheduler, for two reasons. Every graph keeps its own memory, so that several stay ready to run again.
And the work buffer is ours: ggml's backend takes it from the heap, at any multiple of 16 bytes, and the tiles of flash
attention lie in it. From a cache line on, prefill was up to 4 % faster, whatever else had been allocated before.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine import ggml
from engine.devices import Device, cpu_device
from engine.errors import DeviceError, MemoryLimitError
from engine.interrupt import Interrupt, StepInterrupted
from engine.thread_governor import ThreadGovernor

_PAGE = 4096


@dataclass(frozen=True)
class Program:
    """A graph whose nodes have memory, `n_bytes` of its own. is_decode: it computes one token of one sequence.

    n_bytes, allocator, plan: on the CPU; unused elsewhere.
    """

    graph: int
    is_decode: bool
    n_bytes: int = 0
    allocator: int = 0
    plan: ggml.ComputePlan | None = None


class Executor(Protocol):
    """Runs graphs.

    reads_in_place: results lie in memory of this process. max_programs: how many can be loaded at a time.
    """

    reads_in_place: bool
    max_programs: int

    def load(self, graph: int, *, is_decode: bool) -> Program:
        """Give the nodes of a graph memory. Raises MemoryLimitError when there is not enough."""

    def run(self, program: Program, interrupt: Interrupt | None = None) -> None:
        """Compute all nodes. Raises DeviceError, and StepInterrupted when `interrupt` is set and was seen in time."""

    def unload(self, program: Program) -> None:
        """Take the memory back; the graph is still its owner's."""

    def close(self) -> None:
        """Free native memory. All programs must have been unloaded."""


def make_executor(device: Device, *, n_threads: int, max_nodes: int) -> Executor:
    """The executor for a device, for graphs of at most `max_nodes` nodes. Raises DeviceError."""
    if device.kind == "cpu":
        return CpuExecutor(device, n_threads)
    return DeviceExecutor(device, n_threads, max_nodes)


class CpuExecutor:
    """Runs graphs with ggml's CPU kernels on `n_threads` threads, or fewer while other programs use the cores."""

    reads_in_place = True
    max_programs = 8

    def __init__(self, device: Device, n_threads: int) -> None:
        self._buffer_type = device.buffer_type
        self._n_threads = n_threads
        self._governor = ThreadGovernor(n_threads)
        self._work = np.empty(0, np.uint8)

    def load(self, graph: int, *, is_decode: bool) -> Program:
        """See Executor.load."""
        allocator = ggml.gallocr_new(self._buffer_type)
        try:
            if not ggml.gallocr_alloc_graph(allocator, graph):
                raise MemoryLimitError(_NO_MEMORY)
            plan = ggml.graph_plan(graph, self._n_threads, None)
            if plan.work_size > len(self._work):
                self._work = _aligned(plan.work_size)
        except MemoryLimitError:
            ggml.gallocr_free(allocator)
            raise
        return Program(graph, is_decode, ggml.gallocr_get_buffer_size(allocator, 0), allocator, plan)

    def run(self, program: Program, interrupt: Interrupt | None = None) -> None:
        """See Executor.run."""
        assert program.plan is not None
        program.plan.abort_callback = interrupt.callback if interrupt else None
        program.plan.abort_callback_data = interrupt.data if interrupt else None
        program.plan.work_data = self._work.ctypes.data
        program.plan.n_threads = self._governor.n_threads
        start = time.perf_counter()
        _check(ggml.graph_compute(program.graph, ctypes.byref(program.plan)))
        if program.is_decode:
            self._governor.observe(time.perf_counter() - start)

    def unload(self, program: Program) -> None:
        """See Executor.unload."""
        ggml.gallocr_free(program.allocator)

    def close(self) -> None:
        """See Executor.close."""


class DeviceExecutor:
    """Runs graphs on a device, and on the CPU what the device cannot do, through ggml's scheduler.

    The scheduler holds one graph at a time. Inputs lie in host memory; it copies them over where it must.
    """

    max_programs = 1

    def __init__(self, device: Device, n_threads: int, max_nodes: int) -> None:
        self.reads_in_place = device.is_host
        self._backends = _open_backends(device, n_threads)
        handles = (ctypes.c_void_p * len(self._backends))(*self._backends)
        self._scheduler: int = ggml.backend_sched_new(handles, None, len(self._backends), max_nodes, False, True)

    def load(self, graph: int, *, is_decode: bool) -> Program:
        """See Executor.load."""
        ggml.backend_sched_reset(self._scheduler)
        if not ggml.backend_sched_alloc_graph(self._scheduler, graph):
            raise MemoryLimitError(_NO_MEMORY)
        return Program(graph, is_decode)

    def run(self, program: Program, interrupt: Interrupt | None = None) -> None:
        """See Executor.run. What the device has begun it finishes."""
        _check(ggml.backend_sched_graph_compute(self._scheduler, program.graph))

    def unload(self, program: Program) -> None:
        """See Executor.unload."""

    def close(self) -> None:
        """See Executor.close."""
        ggml.backend_sched_free(self._scheduler)
        for backend in self._backends:
            ggml.backend_free(backend)


_NO_MEMORY = "There is no memory for the intermediate results of a step: use a smaller model."


def _check(status: int) -> None:
    if status == ggml.STATUS_ABORTED:
        raise StepInterrupted
    if status != ggml.STATUS_SUCCESS:
        raise DeviceError(f"The device failed to compute a step (ggml status {status}): start again.")


def _aligned(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Memory that starts at a page, and so at a cache line. Raises MemoryLimitError."""
    try:
        memory = np.empty(size + _PAGE, np.uint8)
    except MemoryError:
        raise MemoryLimitError(_NO_MEMORY) from None
    start = -memory.ctypes.data % _PAGE
    return memory[start : start + size]


def _open_backends(device: Device, n_threads: int) -> list[int]:
    """The device's backend, then the CPU's."""
    cpu = cpu_device()
    backends: list[int] = []
    for item in (device, cpu):
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
