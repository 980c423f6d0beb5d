"""The KV pool: memory follows use, blocks are copied whole, refusals are sentences."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest

from engine import ggml
from engine.blocks import BlockCopy
from engine.devices import cpu_device
from engine.errors import MemoryLimitError
from engine.graph_builder import GraphBuilder
from engine.kv_pool import KvLayout, KvPool
from engine.plan import KvGroup

GROUP = KvGroup(layers=(0, 1), head_dim_k=32, head_dim_v=16, n_head_kv=3, window=None)
BLOCK = 16


def contents(tensor: int) -> np.ndarray:
    """All F16 values of a tensor in host memory, in numpy's order."""
    shape = tuple(reversed(ggml.head(tensor).ne))
    memory = (ctypes.c_char * ggml.nbytes(tensor)).from_address(ggml.get_data(tensor))
    return np.frombuffer(memory, np.float16).reshape(shape)


def slot_axis(tensor: int, pool: KvPool) -> int:
    return next(axis for axis, n in enumerate(contents(tensor).shape) if n == pool.stride)


def run_copies(pool: KvPool, copies: list[BlockCopy]) -> None:
    backend = ggml.backend_dev_init(cpu_device().handle, None)
    scheduler = ggml.backend_sched_new((ctypes.c_void_p * 1)(backend), None, 1, 1024, False, False)
    builder = GraphBuilder(max_nodes=256)
    pool.add_copies(builder.context, builder.graph, copies)
    assert ggml.backend_sched_graph_compute(scheduler, builder.graph) == ggml.STATUS_SUCCESS
    builder.close()
    ggml.backend_sched_free(scheduler)
    ggml.backend_free(backend)


@pytest.mark.parametrize("layout", KvLayout)
def test_a_copied_block_equals_its_source_and_nothing_else_changes(layout: KvLayout) -> None:
    pool = KvPool((GROUP,), 8, BLOCK, layout, cpu_device())
    random = np.random.default_rng(0)
    tensors = [*pool.k.values(), *pool.v.values()]
    for tensor in tensors:
        contents(tensor)[:] = random.standard_normal(contents(tensor).shape)
    before = [contents(tensor).copy() for tensor in tensors]
    run_copies(pool, [BlockCopy(0, 2, 5), BlockCopy(0, 5, 0), BlockCopy(0, 3, 6, n_blocks=2)])
    for tensor, snapshot in zip(tensors, before, strict=True):
        axis = slot_axis(tensor, pool)
        old, new = np.moveaxis(snapshot, axis, 0), np.moveaxis(contents(tensor), axis, 0)
        source = old[2 * BLOCK : 3 * BLOCK]
        assert np.array_equal(new[5 * BLOCK : 6 * BLOCK], source)
        assert np.array_equal(new[:BLOCK], source)
        assert np.array_equal(new[BLOCK : 5 * BLOCK], old[BLOCK : 5 * BLOCK])
        assert np.array_equal(new[6 * BLOCK : 8 * BLOCK], old[3 * BLOCK : 5 * BLOCK])
        assert np.array_equal(new[8 * BLOCK :], old[8 * BLOCK :])
    pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems report whole mappings")
def test_memory_is_resident_only_where_it_was_written() -> None:
    pool = KvPool((GROUP,), 4096, BLOCK, KvLayout.PACKED, cpu_device())
    assert pool.bytes_resident() == 0
    keys = contents(pool.k[0])
    keys[0, 0, :64] = 1  # one head's first 64 keys: one page of 4 KiB
    page = 4096
    assert page <= pool.bytes_resident() <= 4 * page
    for head in range(3):
        keys[0, head, :256] = 1
    assert 3 * 4 * page <= pool.bytes_resident() <= 3 * 5 * page
    pool.close()


@pytest.mark.parametrize("layout", KvLayout)
def test_reads_past_the_last_slot_stay_inside_the_pool(layout: KvLayout) -> None:
    for n_blocks in range(1, 20):
        pool = KvPool((GROUP,), n_blocks, BLOCK, layout, cpu_device())
        assert pool.stride >= pool.n_slots + layout.reading.padding - 1
        pool.close()


def test_address_space_that_is_refused_is_one_sentence() -> None:
    with pytest.raises(MemoryLimitError, match=r"refuses .* GiB .*--context"):
        KvPool((GROUP,), 2**42, BLOCK, KvLayout.PACKED, cpu_device())
