"""A KV pool full of random numbers, and sequences in it, to measure with.

Memory that was never written is one page of zeros behind every address: it is read from the nearest cache, and would
hide what memory costs.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np

from engine import ggml
from engine.batch import Segment, key_view, write_spans
from engine.blocks import BLOCK_SIZE, Run
from engine.config import KvType
from engine.devices import Device
from engine.kv_pool import KvLayout, KvPool
from engine.plan import KvGroup

_LEAST_BYTE, _BEYOND_BYTE = 0x20, 0x3C
"""A high byte in this range is an F16 between 0.008 and 1."""


def random_pool(group: KvGroup, n_layers: int, n_slots: int, device: Device, kv_type: KvType) -> KvPool:
    """A pool on the CPU of `n_layers` layers like those of `group`, all slots written.

    Raises MemoryLimitError, and UnsupportedKvType as KvPool does.
    """
    layers = replace(group, layers=tuple(range(n_layers)))
    pool = KvPool((layers,), -(-n_slots // BLOCK_SIZE), BLOCK_SIZE, KvLayout.PACKED, device, kv_type)
    tensors = [*pool.k.values(), *pool.v.values()]
    random = np.random.default_rng(0)
    longest = max(map(ggml.nbytes, tensors))
    # Bytes that are ordinary numbers of either sign, whether they are read as F16 or as blocks of q8_0.
    content = random.integers(_LEAST_BYTE, _BEYOND_BYTE, longest, np.uint8)
    content |= random.integers(0, 2, longest, np.uint8) << 7
    for tensor in tensors:
        ctypes.memmove(ggml.get_data(tensor), content.ctypes.data, ggml.nbytes(tensor))
    return pool


def lone_segment(first_slot: int, start: int, n_tokens: int) -> Segment:
    """`n_tokens` tokens after `start` known ones, of a sequence in one run from `first_slot` (of a block) on."""
    layout = KvLayout.PACKED
    runs = [Run(first_slot // BLOCK_SIZE, -(-(start + n_tokens) // BLOCK_SIZE))]
    reading = layout.reading
    return Segment(
        start,
        n_tokens,
        write_spans(runs, BLOCK_SIZE, start, n_tokens),
        key_view(runs, BLOCK_SIZE, start + n_tokens, reading),
    )
