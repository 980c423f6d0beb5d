"""The number formats of K and V, and the bytes they take.

q8_0 is ggml's block_q8_0: 32 values as one F16 scale and 32 signed bytes, so every head's vector must divide into
blocks of 32. What the user asks for is a wish; KvLayout.types says what a pool of that layout can hold.
"""

from __future__ import annotations

from typing import NamedTuple

from engine import ggml
from engine.config import KvType
from engine.errors import UnsupportedKvType


class KvTypes(NamedTuple):
    """What the keys and the values of a cache are stored as."""

    k: KvType = KvType.F16
    v: KvType = KvType.F16


def ggml_type(kv_type: KvType) -> int:
    """The number of the type in enum ggml_type."""
    return {KvType.F16: ggml.F16, KvType.Q8_0: ggml.Q8_0}[kv_type]


def head_bytes(kv_type: KvType, head_dim: int) -> int:
    """Bytes of the key or value of one head. Raises UnsupportedKvType when it is no whole number of blocks."""
    block = int(ggml.blck_size(ggml_type(kv_type)))
    if head_dim % block:
        raise UnsupportedKvType(
            f"This model's heads have {head_dim} values, which {kv_type} cannot store in blocks of {block}: "
            f"use --kv-type {KvType.F16}."
        )
    return int(ggml.row_size(ggml_type(kv_type), head_dim))
