"""Queries, keys and values turned before quantized keys and values are stored, and results turned back.

A q8_0 block has one scale, that of its largest value. In many models a few channels of the keys are far larger than the
others, which then get few of its 255 steps. Multiplied by an orthonormal Walsh-Hadamard matrix W, every channel is
spread over all (QuaRot, arXiv 2404.00456), and since W W = 1, nothing else changes: Wq · Wk = q · k, and the sum of
p Wv is W times the sum of p v. Sizes are llama.cpp's (build_input_k_rot in llama-kv-cache.cpp), so results are equal.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine import ggml
from engine.batch import Segment
from engine.config import KvType
from engine.graph_builder import GraphBuilder, Input
from engine.kv_types import KvTypes
from engine.plan import Attention

if TYPE_CHECKING:  # engine/attention.py chooses this composition
    from engine.attention import AttentionOps

_SMALLEST = 64
"""Rows of the smallest matrix; heads that it does not divide are stored as they are."""


class RotatedAttention:
    """AttentionOps around others, which see turned queries, keys and values."""

    def __init__(self, inner: AttentionOps, builder: GraphBuilder, plan: Attention, types: KvTypes) -> None:
        self._inner = inner
        self._b = builder
        k_size = _largest_divisor(plan.head_dim_k) if types.k is not KvType.F16 else None
        v_size = _SMALLEST if types.v is not KvType.F16 and plan.head_dim_v % _SMALLEST == 0 else None
        self._matrices = {size: builder.input_2d(ggml.F32, size, size) for size in {k_size, v_size} if size is not None}
        self._k = self._matrices[k_size] if k_size else None
        self._v = self._matrices[v_size] if v_size else None

    def store(self, layer: int, plan: Attention, k: int, v: int) -> None:
        """See AttentionOps.store."""
        self._inner.store(layer, plan, self._turn(k, self._k), self._turn(v, self._v))

    def attend(self, layer: int, plan: Attention, q: int) -> int:
        """See AttentionOps.attend."""
        return self._turn(self._inner.attend(layer, plan, self._turn(q, self._k)), self._v)

    def fill(self, segments: Sequence[Segment]) -> None:
        """See AttentionOps.fill."""
        for size, matrix in self._matrices.items():
            matrix.array[:] = hadamard(size)
        self._inner.fill(segments)

    def _turn(self, x: int, matrix: Input | None) -> int:
        """x in its own shape, every `size` values of its rows multiplied by the matrix."""
        if matrix is None:
            return x
        context, size, ne = self._b.context, matrix.shape[0], ggml.head(x).ne
        rows = x if ggml.is_contiguous(x) else ggml.cont(context, x)
        rows = ggml.reshape_2d(context, rows, size, ne[0] * ne[1] * ne[2] // size)
        turned = ggml.mul_mat(context, matrix.tensor, rows)
        ggml.mul_mat_set_hint(turned, ggml.HINT_HADAMARD)
        return int(ggml.reshape_3d(context, turned, ne[0], ne[1], ne[2]))


def _largest_divisor(head_dim: int) -> int | None:
    """The largest power of two that divides `head_dim`, if it is not too small."""
    power = head_dim & -head_dim
    return power if power >= _SMALLEST else None


@functools.cache
def hadamard(size: int) -> NDArray[np.float32]:
    """The orthonormal Walsh-Hadamard matrix, [size, size], for a power of two."""
    matrix = np.ones((1, 1), np.float32)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    scaled: NDArray[np.float32] = matrix / np.sqrt(np.float32(size))
    return scaled
