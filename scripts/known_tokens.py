"""Puts known tokens into an engine without computing them: random K and V, written where the engine keeps its own.

Deep benchmarks would otherwise spend minutes on prefills whose values nobody looks at. The memory is really written,
with values like a model's: what was never written would be read from the kernel's zero page, in no time at all.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine import ggml
from engine.contiguous import ContiguousEngine
from engine.kv_pool import KvLayout
from engine.native import llama
from engine.paged import PagedEngine
from engine.plan import ModelPlan
from engine.sequence import Request, Sequence

_VALUE_SPREAD = 0.3
"""Standard deviation of V; that of K is 1."""


@dataclass(frozen=True)
class KnownTokens:
    """Token ids, and their K and V: F16 [n_tokens, row width], the same in every layer."""

    ids: tuple[int, ...]
    k: NDArray[np.float16]
    v: NDArray[np.float16]

    def __len__(self) -> int:
        return len(self.ids)


def random_ids(n: int, plan: ModelPlan, random: np.random.Generator) -> tuple[int, ...]:
    """`n` ids from the middle of the vocabulary: control tokens are at its ends."""
    margin = plan.vocabulary // 10
    return tuple(random.integers(margin, plan.vocabulary - margin, n).tolist())


def random_known(n: int, plan: ModelPlan, random: np.random.Generator) -> KnownTokens:
    """`n` tokens that nobody computed, for a model with one KV group."""
    [group] = plan.kv_groups
    k = random.standard_normal((n, group.n_head_kv * group.head_dim_k), np.float32)
    v = random.standard_normal((n, group.n_head_kv * group.head_dim_v), np.float32) * _VALUE_SPREAD
    return KnownTokens(random_ids(n, plan, random), k.astype(np.float16), v.astype(np.float16))


def place_in_pool(engine: PagedEngine, known: KnownTokens) -> None:
    """Leave known tokens, whole blocks of them, in the prefix cache, as a finished answer does."""
    if not known:
        return
    kv, pool = engine._scheduler.kv, engine._pool
    sequence = Sequence(0, 0, 0, Request(known.ids), list(known.ids), ())
    kv.open(sequence)
    kv.grow(sequence, len(known))
    [table] = sequence.tables
    slots = table.slot_mapping(0, len(known))
    for layer in pool.k:
        k, v = _as_array(pool.k[layer]), _as_array(pool.v[layer])
        if pool.layout is KvLayout.PACKED:
            n_heads, _, head_dim = k.shape
            k[:, slots] = known.k.reshape(-1, n_heads, head_dim).transpose(1, 0, 2)
            v[:, slots] = known.v.T
        else:
            k[slots], v[slots] = known.k, known.v
    sequence.n_computed = len(known)
    kv.publish(sequence)
    kv.release(sequence)


def empty_pool(engine: PagedEngine) -> None:
    """Forget all cached blocks, so that the next sequence lies where the first one did."""
    for group in engine._scheduler.kv.groups:
        group.make_room(group.n_blocks)


def _as_array(tensor: int) -> NDArray[np.float16]:
    """An F16 tensor in host memory, dimensions in numpy's order: the contiguous one last."""
    memory = (ctypes.c_char * ggml.nbytes(tensor)).from_address(ggml.get_data(tensor))
    shape = tuple(ggml.head(tensor).ne)[::-1]
    while shape[0] == 1:
        shape = shape[1:]
    return np.frombuffer(memory, np.float16).reshape(shape)


def place_in_contiguous(engine: ContiguousEngine, known: KnownTokens, *, flash: bool) -> None:
    """Let known tokens be all that the engine holds, as after a finished answer. flash: as the engine was loaded."""
    place_in_context(engine._llama._context, known, sequence_id=0, flash=flash)
    engine._llama.held[:] = known.ids


def place_in_context(context: int, known: KnownTokens, *, sequence_id: int, flash: bool) -> None:
    """Replace a sequence of a llama.cpp context by known tokens.

    The format is that of llama_kv_cache::state_write in llama.cpp; the state of a sequence that is empty tells the
    magic number and how many streams the cache has. V is transposed without flash attention.
    """
    llama.llama_memory_seq_rm(llama.llama_get_memory(context), sequence_id, -1, -1)
    if not known:
        return
    n_layers = llama.llama_model_n_layer(llama.llama_get_model(context))
    empty = (ctypes.c_uint8 * llama.llama_state_seq_get_size(context, sequence_id))()
    llama.llama_state_seq_get_data(context, empty, len(empty), sequence_id)
    magic, _, n_streams = struct.unpack_from("<III", empty)
    cells = b"".join(struct.pack("<iIi", position, 1, sequence_id) for position in range(len(known)))
    if flash:
        values = struct.pack("<iQ", ggml.F16, known.v[0].nbytes) + known.v.tobytes()
    else:
        values = struct.pack("<iII", ggml.F16, known.v.itemsize, known.v.shape[1]) + known.v.T.tobytes()
    state = b"".join(
        [
            struct.pack("<IIII", magic, sequence_id, n_streams, len(known)),
            cells,
            struct.pack("<II", not flash, n_layers),
            *[struct.pack("<iQ", ggml.F16, known.k[0].nbytes) + known.k.tobytes()] * n_layers,
            *[values] * n_layers,
            bytes(4 * (n_streams - 1)),  # the other streams have no cells
        ]
    )
    buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
    if not llama.llama_state_seq_set_data(context, buffer, len(state), sequence_id):
        raise RuntimeError("llama.cpp does not take the state: its format has changed")
