"""The physical K and V tensors: memory that is committed as it is written, and copies of blocks.

Two layouts, chosen per device by engine/paged.py; S is the number of slots, D the head size,
H the number of KV heads, dimensions in ggml's order:

    PACKED  K [D, S, H]   one head after the other, so that a head's keys are one matrix
            V [S, D*H]    transposed, so that probabilities times values is a matrix product; always F16, because
                          a token's values lie apart, and a q8_0 block is written whole
    ROWS    K [D*H, S]    one token after the other, as flash attention kernels want it
            V [D*H, S]

The pool owns memory and addresses; which slot belongs to whom is the business of engine/blocks.py.
"""

from __future__ import annotations

import ctypes
import enum
import mmap
import sys
from collections.abc import Sequence
from pathlib import Path

from engine import ggml
from engine.batch import Reading
from engine.blocks import BlockCopy
from engine.config import KvType
from engine.devices import Device
from engine.errors import MemoryLimitError
from engine.kv_types import KvTypes, ggml_type, head_bytes
from engine.plan import KvGroup

_TILE = 64
"""Slots per tile of the stride; a multiple of the alignment of rows that ggml's kernels like."""

_PAGE = mmap.PAGESIZE


class KvLayout(enum.Enum):
    """Order of the dimensions of K and V; see the module's docstring."""

    PACKED = "packed"
    ROWS = "rows"

    def types(self, wanted: KvType) -> KvTypes:
        """What a pool of this layout stores when keys and values are wanted as `wanted`."""
        return KvTypes(wanted, KvType.F16 if self is KvLayout.PACKED else wanted)

    @property
    def reading(self) -> Reading:
        """How attention reads this layout.

        Padding is the step between two graphs. Longer steps mean fewer graphs and more masked keys; ggml's dot products
        of F16 take up to 64 numbers at a time and the rest one by one; flash attention on a GPU wants 256. Each stretch
        adds nodes to every layer; flash attention takes one.
        """
        if self is KvLayout.PACKED:
            return Reading(padding=64, merge_limit=1.3, max_spans=8)
        return Reading(padding=256, merge_limit=1.3, max_spans=1)


def bytes_per_slot(groups: tuple[KvGroup, ...], types: KvTypes) -> int:
    """Bytes of one token's K and V in all layers. Raises UnsupportedKvType when a head is no whole number of blocks."""
    return sum(
        len(group.layers)
        * group.n_head_kv
        * (head_bytes(types.k, group.head_dim_k) + head_bytes(types.v, group.head_dim_v))
        for group in groups
    )


class KvPool:
    """K and V of every layer of one loaded model.

    k, v: tensor of each layer, indexed by layer number. types: what they hold. stride: slots per tensor, padding
    included.
    """

    def __init__(
        self,
        groups: tuple[KvGroup, ...],
        n_blocks: int,
        block_size: int,
        layout: KvLayout,
        device: Device,
        kv_type: KvType = KvType.F16,
    ) -> None:
        """Reserve address space for `n_blocks` blocks; on the CPU no memory is committed yet.

        kv_type: wanted for keys and values; `types` is what the layout makes of it.
        Raises MemoryLimitError when the device refuses the allocation, UnsupportedKvType as `bytes_per_slot` does.
        """
        self.layout = layout
        self.types = layout.types(kv_type)
        self.block_size = block_size
        self.n_slots = n_blocks * block_size
        self.stride = _odd_tiles(self.n_slots + layout.reading.padding)
        self.bytes_per_slot = bytes_per_slot(groups, self.types)
        self._groups = groups
        n_layers = sum(len(group.layers) for group in groups)
        self._context = ggml.init(ggml.InitParams(ggml.tensor_overhead() * 2 * n_layers, None, True))
        self.k: dict[int, int] = {}
        self.v: dict[int, int] = {}
        for group in groups:
            for layer in group.layers:
                self.k[layer] = self._new_tensor(group.head_dim_k, group.n_head_kv, is_value=False)
                self.v[layer] = self._new_tensor(group.head_dim_v, group.n_head_kv, is_value=True)
        self._mapping: mmap.mmap | None = None
        if device.kind == "cpu":
            self._buffer = self._map_memory(device)
        else:
            self._buffer = ggml.backend_alloc_ctx_tensors_from_buft(self._context, device.buffer_type)
            if not self._buffer:
                ggml.free(self._context)
                raise MemoryLimitError(
                    f"{device.name} has no room for a KV cache of {self.n_slots} tokens: use a smaller --context."
                )
            ggml.backend_buffer_clear(self._buffer, 0)

    def _new_tensor(self, head_dim: int, n_head_kv: int, *, is_value: bool) -> int:
        tensor: int
        number_type = ggml_type(self.types.v if is_value else self.types.k)
        if self.layout is KvLayout.ROWS:
            tensor = ggml.new_tensor_2d(self._context, number_type, head_dim * n_head_kv, self.stride)
        elif is_value:
            tensor = ggml.new_tensor_2d(self._context, number_type, self.stride, head_dim * n_head_kv)
        else:
            tensor = ggml.new_tensor_3d(self._context, number_type, head_dim, self.stride, n_head_kv)
        return tensor

    def _map_memory(self, device: Device) -> int:
        """Place the tensors in an anonymous mapping: pages become resident only where they are written."""
        tensors = [*self.k.values(), *self.v.values()]
        size = sum(_round_up(ggml.nbytes(tensor), _PAGE) for tensor in tensors)
        try:
            self._mapping = _anonymous_mapping(size)
        except (OSError, ValueError, OverflowError):
            ggml.free(self._context)
            raise MemoryLimitError(
                f"The system refuses {size / 2**30:.1f} GiB of address space for the KV cache: use a smaller --context."
            ) from None
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self._address = address
        buffer: int = ggml.backend_dev_buffer_from_host_ptr(device.handle, address, size, size)
        for tensor in tensors:
            ggml.backend_tensor_alloc(buffer, tensor, address)
            address += _round_up(ggml.nbytes(tensor), _PAGE)
        return buffer

    @property
    def commit_step(self) -> int | None:
        """Blocks whose memory is committed with the first of them; None if all memory is there from the start.

        A page of the packed V holds one channel of so many tokens; of K it holds a block's or two.
        """
        return None if self._mapping is None else max(1, _PAGE // (ctypes.sizeof(ctypes.c_uint16) * self.block_size))

    def bytes_resident(self) -> int:
        """Physical memory behind the pool, in bytes: what was written, in whole pages; on a device all of it."""
        if self._mapping is None:
            return int(ggml.backend_buffer_get_size(self._buffer))
        return _resident_bytes(self._address, len(self._mapping))

    def add_copies(self, context: int, graph: int, copies: Sequence[BlockCopy]) -> None:
        """Append to `graph` the copies, one after the other, in every layer of their group."""
        value_axis = 0 if self.layout is KvLayout.PACKED else 1
        for index, group in enumerate(self._groups):
            own = [copy for copy in copies if copy.group == index]
            for layer in group.layers if own else ():
                self._add_tensor_copies(context, graph, own, self.k[layer], 1)
                self._add_tensor_copies(context, graph, own, self.v[layer], value_axis)

    def _add_tensor_copies(
        self, context: int, graph: int, copies: Sequence[BlockCopy], tensor: int, slot_axis: int
    ) -> None:
        halves = ggml.reinterpret(context, tensor, ggml.F16, 2)  # Metal has no copy from q8_0 to q8_0
        head = ggml.head(halves)
        ne, nb = list(head.ne[:3]), list(head.nb)
        for copy in copies:
            ne[slot_axis] = copy.n_blocks * self.block_size
            source, target = (
                ggml.view_3d(context, halves, *ne, nb[1], nb[2], block * self.block_size * nb[slot_axis])
                for block in (copy.source, copy.target)
            )
            ggml.build_forward_expand(graph, ggml.cpy(context, source, target))

    def close(self) -> None:
        """Give the memory back."""
        ggml.backend_buffer_free(self._buffer)
        ggml.free(self._context)
        self._mapping = None


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _odd_tiles(n_slots: int) -> int:
    """Round up to an odd number of tiles: rows a power of two apart would share few cache sets."""
    return (-(-n_slots // _TILE) | 1) * _TILE


def _anonymous_mapping(size: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if hasattr(mmap, "MAP_NORESERVE"):
        flags |= mmap.MAP_NORESERVE
    mapping = mmap.mmap(-1, size, flags=flags)
    for advice in ("MADV_NOHUGEPAGE", "MADV_DONTFORK"):
        # Small pages, so that memory follows use; and a mapping of its own, so that it can be measured.
        if hasattr(mmap, advice):
            mapping.madvise(getattr(mmap, advice))
    return mapping


def _resident_bytes(address: int, size: int) -> int:
    """Resident bytes of one mapping: from smaps on Linux, elsewhere by asking mincore page by page."""
    smaps = Path("/proc/self/smaps")
    if smaps.exists():
        return _resident_from_smaps(smaps.read_text(), address, size)
    if sys.platform == "win32":
        return size
    libc = ctypes.CDLL(None)
    flags = (ctypes.c_ubyte * -(-size // _PAGE))()
    if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), flags) != 0:
        return size
    return sum(flag & 1 for flag in flags) * _PAGE


def _resident_from_smaps(text: str, address: int, size: int) -> int:
    """Sum the "Rss:" lines of the areas inside [address, address + size); format: proc_pid_smaps(5)."""
    total = 0
    inside = False
    for line in text.splitlines():
        fields = line.split()
        bounds = fields[0].split("-")
        if len(bounds) == 2:
            start = int(bounds[0], 16)
            inside = address <= start < address + size
        elif inside and fields[0] == "Rss:":
            total += int(fields[1]) * 1024
    return total
