"""GGUF tensors in backend buffers: repacked for the CPU's kernels, mapped from the file, or uploaded.

Placement follows llama.cpp: the token embedding, which is only looked up, stays in host memory; a matrix
goes to the CPU's "extra" buffer types when one of them has faster kernels for it; all else goes to the
device's own memory, which for the CPU (and where the device can use mapped memory) is the file itself.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engine import ggml
from engine.devices import Device, cpu_device
from engine.errors import MemoryLimitError, ModelFileError
from engine.gguf_file import GgufFile, TensorInfo
from engine.plan import ModelPlan

_TRIAL_COLUMNS = 512
"""Columns of the matrix with which a buffer type is asked whether it can multiply a weight."""


@dataclass(frozen=True)
class _Placement:
    """One tensor to create: `name` is that of the weight, which for a tied output differs from its source's."""

    name: str
    source: TensorInfo
    device: Device
    buffer_type: int
    is_mapped: bool


class Weights:
    """The loaded tensors of one model, by name. `embedding` is looked up, `output` multiplied; they may be one.

    buffer_types: number of tensors per ggml buffer type, for people who want to know.
    """

    def __init__(self, file: GgufFile, plan: ModelPlan, device: Device, progress: Callable[[float], None]) -> None:
        """Load every tensor of the plan. `progress` gets fractions from 0 to 1.

        Raises MemoryLimitError when the device has no room, ModelFileError when the file cannot be mapped.
        """
        self._tensors: dict[str, int] = {}
        self._contexts: list[int] = []
        self._buffers: list[int] = []
        self._mapping = _map_file(file)
        self._address = np.frombuffer(self._mapping, np.uint8).ctypes.data
        placements = _place(file, plan, device)
        self.buffer_types = Counter(
            "mapped file" if p.is_mapped else ggml.backend_buft_name(p.buffer_type).decode() for p in placements
        )
        self._bind_mapped([p for p in placements if p.is_mapped])
        copied = [p for p in placements if not p.is_mapped]
        total = sum(p.source.n_bytes for p in copied)
        done = 0
        for buffer_type in dict.fromkeys(p.buffer_type for p in copied):
            group = [p for p in copied if p.buffer_type == buffer_type]
            self._allocate(group, buffer_type, device)
            for placement in group:
                info = placement.source
                ggml.backend_tensor_set(self._tensors[placement.name], self._address + info.offset, 0, info.n_bytes)
                done += info.n_bytes
                progress(done / total)
        progress(1.0)
        self.embedding = self._tensors[plan.token_embedding]
        self.output = self._tensors.get(_TIED_OUTPUT) or self._tensors[plan.output.weight]

    def __getitem__(self, name: str) -> int:
        return self._tensors[name]

    def _bind_mapped(self, placements: list[_Placement]) -> None:
        """Point tensors into the mapping, one buffer per device that uses it."""
        for device in {p.device.name: p.device for p in placements}.values():
            group = [p for p in placements if p.device.name == device.name]
            largest = max(p.source.n_bytes for p in group)
            size = len(self._mapping)
            buffer = ggml.backend_dev_buffer_from_host_ptr(device.handle, self._address, size, largest)
            if not buffer:
                raise MemoryLimitError(f"{device.name} has no room for the model's {size / 2**30:.1f} GiB.")
            ggml.backend_buffer_set_usage(buffer, ggml.BUFFER_USAGE_WEIGHTS)
            self._buffers.append(buffer)
            for placement, tensor in zip(group, self._new_tensors(group), strict=True):
                ggml.backend_tensor_alloc(buffer, tensor, self._address + placement.source.offset)

    def _allocate(self, placements: list[_Placement], buffer_type: int, device: Device) -> None:
        self._new_tensors(placements)
        buffer = ggml.backend_alloc_ctx_tensors_from_buft(self._contexts[-1], buffer_type)
        if not buffer:
            size = sum(p.source.n_bytes for p in placements)
            raise MemoryLimitError(
                f"{device.name} has no room for {size / 2**30:.1f} GiB of weights: use a smaller model or quantization."
            )
        ggml.backend_buffer_set_usage(buffer, ggml.BUFFER_USAGE_WEIGHTS)
        self._buffers.append(buffer)

    def _new_tensors(self, placements: list[_Placement]) -> list[int]:
        context = ggml.init(ggml.InitParams(ggml.tensor_overhead() * len(placements), None, True))
        self._contexts.append(context)
        tensors = []
        for placement in placements:
            tensor = _new_tensor(context, placement.source)
            self._tensors[placement.name] = tensor
            tensors.append(tensor)
        return tensors

    def close(self) -> None:
        """Free the buffers and unmap the file."""
        for buffer in self._buffers:
            ggml.backend_buffer_free(buffer)
        for context in self._contexts:
            ggml.free(context)
        self._buffers.clear()
        self._contexts.clear()


_TIED_OUTPUT = "output.weight (tied)"


def _map_file(file: GgufFile) -> mmap.mmap:
    try:
        with file.path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{file.path} cannot be mapped into memory: {error}.") from None


def _place(file: GgufFile, plan: ModelPlan, device: Device) -> list[_Placement]:
    cpu = cpu_device()
    matrices = _matrix_names(plan)
    extra = _extra_buffer_types(device)
    placements = []
    for info in file.tensors.values():
        if info.name == plan.token_embedding:
            placements.append(_Placement(info.name, info, cpu, cpu.buffer_type, cpu.maps_host_memory))
            if plan.tied:
                buffer_type = _best_buffer_type(info, device, extra)
                if device.name != cpu.name or buffer_type != cpu.buffer_type:
                    placements.append(_in_device(_TIED_OUTPUT, info, device, buffer_type))
        else:
            buffer_type = _best_buffer_type(info, device, extra) if info.name in matrices else device.buffer_type
            placements.append(_in_device(info.name, info, device, buffer_type))
    return placements


def _in_device(name: str, info: TensorInfo, device: Device, buffer_type: int) -> _Placement:
    is_mapped = buffer_type == device.buffer_type and device.maps_host_memory
    return _Placement(name, info, device, buffer_type, is_mapped)


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


def _best_buffer_type(info: TensorInfo, device: Device, extra: list[int]) -> int:
    """The first extra buffer type in which the device can multiply with this weight, else the device's own."""
    return next((t for t in extra if _supports(info, device, t)), device.buffer_type)


def _supports(info: TensorInfo, device: Device, buffer_type: int) -> bool:
    """Ask the device with a trial product whose weight lies in an empty buffer of that type."""
    context = ggml.init(ggml.InitParams(ggml.tensor_overhead() * 4, None, True))
    weight = _new_tensor(context, info)
    columns = ggml.new_tensor_2d(context, ggml.F32, info.shape[0], _TRIAL_COLUMNS)
    product = ggml.mul_mat(context, weight, columns)
    buffer = ggml.backend_buft_alloc_buffer(buffer_type, 0)
    ggml.head(weight).buffer = buffer
    supported: bool = ggml.backend_dev_supports_op(device.handle, product)
    ggml.backend_buffer_free(buffer)
    ggml.free(context)
    return supported


def _new_tensor(context: int, info: TensorInfo) -> int:
    ne = [*info.shape, 1, 1, 1, 1][:4]
    tensor: int = ggml.new_tensor_4d(context, info.type, *ne)
    return tensor
