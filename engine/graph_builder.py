"""The bookkeeping of one ggml graph: its context, its nodes, and inputs that numpy writes in place."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import ggml

_DTYPES: dict[int, type[np.generic]] = {
    ggml.F32: np.float32,
    ggml.F16: np.float16,
    ggml.I32: np.int32,
    ggml.I64: np.int64,
}


@dataclass
class Input:
    """A tensor that is written before each run.

    shape: in numpy's order (ggml's reversed). array: its memory; set by `bind_inputs`.
    """

    tensor: int
    shape: tuple[int, ...]
    array: NDArray[Any] = field(default_factory=lambda: np.empty(0))


class GraphBuilder:
    """Owns a ggml context with room for `max_nodes` tensors, and the graph being built in it."""

    def __init__(self, max_nodes: int) -> None:
        size = ggml.tensor_overhead() * max_nodes + ggml.graph_overhead_custom(max_nodes, False)
        self.context: int = ggml.init(ggml.InitParams(size, None, True))
        self.graph: int = ggml.new_graph_custom(self.context, max_nodes, False)
        self._inputs: list[Input] = []

    def input_1d(self, tensor_type: int, n: int) -> Input:
        """A vector [n] to be written before each run."""
        return self._input(ggml.new_tensor_1d(self.context, tensor_type, n), (n,))

    def input_2d(self, tensor_type: int, ne0: int, ne1: int) -> Input:
        """A matrix [ne0, ne1] to be written before each run."""
        return self._input(ggml.new_tensor_2d(self.context, tensor_type, ne0, ne1), (ne1, ne0))

    def _input(self, tensor: int, shape: tuple[int, ...]) -> Input:
        # The output flag keeps the allocator from giving the memory to another node after its last use.
        ggml.set_input(tensor)
        ggml.set_output(tensor)
        self._inputs.append(Input(tensor, shape))
        return self._inputs[-1]

    def expand(self, tensor: int) -> None:
        """Append `tensor`, and what it needs, to the graph: nodes run in this order."""
        ggml.build_forward_expand(self.graph, tensor)

    def columns(self, tensor: int, first: int, n: int) -> int:
        """Columns [first, first + n) of a matrix."""
        head = ggml.head(tensor)
        view: int = ggml.view_2d(self.context, tensor, head.ne[0], n, head.nb[1], first * head.nb[1])
        return view

    def bind_inputs(self) -> None:
        """After allocation: let numpy look at the inputs, which the scheduler keeps in host memory.

        An input that no node reads is not allocated; its array takes the writes and nothing else.
        """
        for item in self._inputs:
            dtype = np.dtype(_DTYPES[ggml.head(item.tensor).type])
            address = ggml.get_data(item.tensor)
            if address:
                memory = (ctypes.c_char * ggml.nbytes(item.tensor)).from_address(address)
                item.array = np.frombuffer(memory, dtype).reshape(item.shape)
            else:
                item.array = np.empty(item.shape, dtype)

    def close(self) -> None:
        """Free the graph and its tensors' descriptions."""
        ggml.free(self.context)
