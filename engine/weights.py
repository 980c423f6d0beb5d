"""GGUF tensors in backend buffers: repacked for the CPU's kernels, mapped from the file, copied, or uploaded.

Placement follows llama.cpp: the token embedding, which is only looked up, stays in host memory; a matrix
goes to the CPU's "extra" buffer types when one of them has faster kernels for it; all else goes to the
device's own memory, which for the CPU (and where the device can use mapped memory) is the file itself.

Two things are better than that, as measured on two AVX-512 cores with a model of 135M parameters. Projections of the
same input, those to queries, keys and values and those of gate and up, become one matrix where their types agree and
they are written anyway: decoding is 2 to 8 % faster. And Linux gives memory of our own large pages, so that a copy
decodes 3 % faster than the mapped file; `prefers_copy` says when a copy is worth its memory.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine import ggml
from engine.devices import Device, cpu_device
from engine.errors import MemoryLimitError, ModelFileError
from engine.gguf_file import GgufFile, TensorInfo
from engine.plan import Linear, ModelPlan
from engine.printable import one_line

_HUGE_PAGE = 2 * 2**20
"""Bytes of a large page on the processors that matter here; a wrong guess only asks for less."""

_COPY_SHARE = 8
"""A model is copied if it takes at most this fraction of the available memory."""

_TRIAL_COLUMNS = 512
"""Columns of the matrix with which a buffer type is asked whether it can multiply a weight."""


@dataclass(frozen=True)
class _Placement:
    """One tensor to create from one of the file, or from several that are stacked along their outputs.

    name: how the graph asks for it; for a stack or a tied output it is no name of the file.
    """

    name: str
    sources: tuple[TensorInfo, ...]
    device: Device
    buffer_type: int
    is_mapped: bool

    @property
    def type(self) -> int:
        return self.sources[0].type

    @property
    def shape(self) -> tuple[int, ...]:
        *inner, _ = self.sources[0].shape
        return (*inner, sum(source.shape[-1] for source in self.sources))

    @property
    def n_bytes(self) -> int:
        return sum(source.n_bytes for source in self.sources)


class Weights:
    """The loaded tensors of one model, by name. `embedding` is looked up, `output` multiplied; they may be one.

    buffer_types: number of tensors per ggml buffer type, for people who want to know.
    """

    def __init__(
        self, file: GgufFile, plan: ModelPlan, device: Device, progress: Callable[[float], None], *, copied: bool
    ) -> None:
        """Load every tensor of the plan. `progress` gets fractions from 0 to 1.

        copied: leave nothing in the mapped files. Raises MemoryLimitError when the device has no room,
        ModelFileError when a file cannot be mapped.
        """
        self._tensors: dict[str, int] = {}
        self._contexts: list[int] = []
        self._buffers: list[int] = []
        self._mappings: list[mmap.mmap] = []
        self._files: list[npt.NDArray[np.uint8]] = []
        """What the mappings hold, by the shard of a split model."""
        try:
            self._map(file)
            self._load(file, plan, device, progress, copied=copied)
        except BaseException:
            self.close()
            raise

    def _map(self, file: GgufFile) -> None:
        for path in file.paths:
            self._mappings.append(_map_file(path))
            self._files.append(np.frombuffer(self._mappings[-1], np.uint8))

    def _load(
        self, file: GgufFile, plan: ModelPlan, device: Device, progress: Callable[[float], None], *, copied: bool
    ) -> None:
        placements = _place(file, plan, device, copied=copied)
        self.buffer_types = Counter(
            "mapped file" if p.is_mapped else ggml.backend_buft_name(p.buffer_type).decode() for p in placements
        )
        self._bind_mapped([p for p in placements if p.is_mapped])
        written = [p for p in placements if not p.is_mapped]
        total = sum(p.n_bytes for p in written)
        done = 0
        for buffer_type in dict.fromkeys(p.buffer_type for p in written):
            group = [p for p in written if p.buffer_type == buffer_type]
            self._allocate(group, buffer_type, device)
            for placement in group:
                self._upload(placement)
                done += placement.n_bytes
                progress(done / total)
        if len(written) == len(placements):
            self._unmap()
        progress(1.0)
        self.embedding = self._tensors[plan.token_embedding]
        self.output = self._tensors.get(_TIED_OUTPUT) or self._tensors[plan.output.weight]

    def __getitem__(self, name: str) -> int:
        return self._tensors[name]

    def stacked(self, linears: Sequence[Linear]) -> int | None:
        """The weights of several projections of the same input as one matrix, None where they are apart."""
        return self._tensors.get(_stack_name(linears))

    def _bind_mapped(self, placements: list[_Placement]) -> None:
        """Point tensors into the mappings, one buffer for each mapping and device that uses it."""
        groups: dict[tuple[int, str], list[_Placement]] = {}
        for placement in placements:
            groups.setdefault((placement.sources[0].shard, placement.device.name), []).append(placement)
        for (shard, _), group in groups.items():
            device, file = group[0].device, self._files[shard]
            largest = max(p.n_bytes for p in group)
            buffer = ggml.backend_dev_buffer_from_host_ptr(device.handle, file.ctypes.data, file.nbytes, largest)
            if not buffer:
                raise MemoryLimitError(f"{device.name} has no room for the model's {file.nbytes / 2**30:.1f} GiB.")
            ggml.backend_buffer_set_usage(buffer, ggml.BUFFER_USAGE_WEIGHTS)
            self._buffers.append(buffer)
            for placement, tensor in zip(group, self._new_tensors(group), strict=True):
                ggml.backend_tensor_alloc(buffer, tensor, file.ctypes.data + placement.sources[0].offset)

    def _allocate(self, placements: list[_Placement], buffer_type: int, device: Device) -> None:
        self._new_tensors(placements)
        buffer = ggml.backend_alloc_ctx_tensors_from_buft(self._contexts[-1], buffer_type)
        if not buffer:
            size = sum(p.n_bytes for p in placements)
            raise MemoryLimitError(
                f"{device.name} has no room for {size / 2**30:.1f} GiB of weights: use a smaller model or quantization."
            )
        ggml.backend_buffer_set_usage(buffer, ggml.BUFFER_USAGE_WEIGHTS)
        if device.kind == "cpu":
            _advise_huge_pages(ggml.backend_buffer_get_base(buffer), ggml.backend_buffer_get_size(buffer))
        self._buffers.append(buffer)

    def _new_tensors(self, placements: list[_Placement]) -> list[int]:
        context = ggml.init(ggml.InitParams(ggml.tensor_overhead() * len(placements), None, True))
        self._contexts.append(context)
        tensors = []
        for placement in placements:
            tensor = _new_tensor(context, placement.type, placement.shape)
            self._tensors[placement.name] = tensor
            tensors.append(tensor)
        return tensors

    def _upload(self, placement: _Placement) -> None:
        pieces = [self._files[s.shard][s.offset : s.offset + s.n_bytes] for s in placement.sources]
        data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        ggml.backend_tensor_set(self._tensors[placement.name], data.ctypes.data, 0, data.nbytes)

    def close(self) -> None:
        """Free the buffers and unmap the files."""
        for buffer in self._buffers:
            ggml.backend_buffer_free(buffer)
        for context in self._contexts:
            ggml.free(context)
        self._buffers.clear()
        self._contexts.clear()
        self._unmap()

    def _unmap(self) -> None:
        self._files.clear()  # nothing may look into a mapping any more when it is closed
        for mapping in self._mappings:
            mapping.close()


def prefers_copy(file: GgufFile, device: Device, available: int) -> bool:
    """Whether weights of this file are better copied than mapped, with `available` bytes of memory free.

    Mapped weights share the page cache between processes and starts, which counts for more in a large model.
    """
    return device.kind == "cpu" and hasattr(mmap, "MADV_HUGEPAGE") and file.n_bytes <= available // _COPY_SHARE


_TIED_OUTPUT = "output.weight (tied)"


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"The model file '{one_line(str(path))}' cannot be mapped into memory: {one_line(str(error))}."
        ) from None


def _advise_huge_pages(address: int, size: int) -> None:
    """Ask Linux for large pages before the weights are written: fewer misses on their way to every token."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        start = -(-address // _HUGE_PAGE) * _HUGE_PAGE
        length = (address + size) // _HUGE_PAGE * _HUGE_PAGE - start
        if length > 0:  # a kernel without them refuses, and nothing is lost
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)


def _place(file: GgufFile, plan: ModelPlan, device: Device, *, copied: bool) -> list[_Placement]:
    cpu = cpu_device()
    extra = _extra_buffer_types(device)
    matrices = _matrix_names(plan)
    embedding = file.tensors[plan.token_embedding]
    placements = [_Placement(embedding.name, (embedding,), cpu, cpu.buffer_type, cpu.maps_host_memory)]
    if plan.tied:
        buffer_type = _best_buffer_type(embedding.type, embedding.shape, device, extra)
        if device.name != cpu.name or buffer_type != cpu.buffer_type:
            placements.append(_in_device(_TIED_OUTPUT, (embedding,), device, buffer_type))
    in_stacks: set[str] = set()
    for name, names in _stacks(file, plan).items():
        sources = tuple(file.tensors[source] for source in names)
        buffer_type = _best_buffer_type(sources[0].type, sources[0].shape, device, extra)
        stack = _in_device(name, sources, device, buffer_type)
        if copied or not stack.is_mapped:
            placements.append(stack)
            in_stacks.update(names)
    for info in file.tensors.values():
        if info.name == plan.token_embedding or info.name in in_stacks:
            continue
        is_matrix = info.name in matrices
        buffer_type = _best_buffer_type(info.type, info.shape, device, extra) if is_matrix else device.buffer_type
        placements.append(_in_device(info.name, (info,), device, buffer_type))
    if copied:
        placements = [replace(placement, is_mapped=False) for placement in placements]
    return placements


def _in_device(name: str, sources: tuple[TensorInfo, ...], device: Device, buffer_type: int) -> _Placement:
    is_mapped = buffer_type == device.buffer_type and device.maps_host_memory
    return _Placement(name, sources, device, buffer_type, is_mapped)


def _matrix_names(plan: ModelPlan) -> set[str]:
    """Names of the tensors that are multiplied with, the output included unless it is the token embedding."""
    names = {plan.output.weight} - {plan.token_embedding}
    for layer in plan.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        for linear in (attention.q, attention.k, attention.v, attention.output):
            names.add(linear.weight)
        for linear in (feed_forward.gate, feed_forward.up, feed_forward.down):
            names.add(linear.weight)
    return names


def _stacks(file: GgufFile, plan: ModelPlan) -> dict[str, tuple[str, ...]]:
    """The projections that become one matrix: its name, and the names of its parts."""
    stacks = {}
    groups: list[tuple[Linear, ...]]
    for layer in plan.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        groups = [(attention.q, attention.k, attention.v)]
        if not (feed_forward.gate.bias or feed_forward.up.bias):  # the halves of the product go into one operation
            groups.append((feed_forward.gate, feed_forward.up))
        for linears in groups:
            if len({file.tensors[linear.weight].type for linear in linears}) == 1:
                stacks[_stack_name(linears)] = tuple(linear.weight for linear in linears)
    return stacks


def _stack_name(linears: Sequence[Linear]) -> str:
    return " + ".join(linear.weight for linear in linears)


def _extra_buffer_types(device: Device) -> list[int]:
    """Buffer types with rearranged weights that the device offers beside its own, best first."""
    registry = ggml.backend_dev_backend_reg(device.handle)
    address = ggml.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    if not address:
        return []
    get_extra = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)
    listed = get_extra(device.handle)
    types: list[int] = []
    while listed and listed[len(types)]:
        types.append(int(listed[len(types)]))
    return types


def _best_buffer_type(tensor_type: int, shape: tuple[int, ...], device: Device, extra: list[int]) -> int:
    """The first extra buffer type in which the device can multiply with such a weight, else the device's own."""
    return next((t for t in extra if _supports(tensor_type, shape, device, t)), device.buffer_type)


def _supports(tensor_type: int, shape: tuple[int, ...], device: Device, buffer_type: int) -> bool:
    """Ask the device with a trial product whose weight lies in an empty buffer of that type."""
    context = ggml.init(ggml.InitParams(ggml.tensor_overhead() * 4, None, True))
    weight = _new_tensor(context, tensor_type, shape)
    columns = ggml.new_tensor_2d(context, ggml.F32, shape[0], _TRIAL_COLUMNS)
    product = ggml.mul_mat(context, weight, columns)
    buffer = ggml.backend_buft_alloc_buffer(buffer_type, 0)
    ggml.head(weight).buffer = buffer
    supported: bool = ggml.backend_dev_supports_op(device.handle, product)
    ggml.backend_buffer_free(buffer)
    ggml.free(context)
    return supported


def _new_tensor(context: int, tensor_type: int, shape: tuple[int, ...]) -> int:
    ne = [*shape, 1, 1, 1, 1][:4]
    tensor: int = ggml.new_tensor_4d(context, tensor_type, *ne)
    return tensor
