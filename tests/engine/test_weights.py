"""Where weights lie: what is mapped is the file itself, what is repacked multiplies as before."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine import ggml
from engine.devices import cpu_device
from engine.gguf_file import GgufFile
from engine.native import LOG_INFO, captured_log, llama
from engine.plan import ModelPlan
from engine.weights import Weights, prefers_copy


def load(path: Path, progress: Callable[[float], None] = lambda _fraction: None, *, copied: bool = False) -> Weights:
    file = GgufFile.open(path)
    return Weights(file, ModelPlan.from_gguf(file), cpu_device(), progress, copied=copied)


def content(tensor: int) -> bytes:
    return ctypes.string_at(ggml.get_data(tensor), ggml.nbytes(tensor))


@pytest.mark.parametrize("copied", [False, True])
def test_tensors_hold_the_bytes_of_the_file(tiny_model: Callable[..., Path], copied: bool) -> None:
    path = tiny_model(weight_type="F32")
    file, data = GgufFile.open(path), path.read_bytes()
    plan, weights = ModelPlan.from_gguf(file), load(path, copied=copied)
    parts = {info.name: data[info.offset : info.offset + info.n_bytes] for info in file.tensors.values()}
    n_stacks = 0
    for layer in plan.layers:
        attention, feed_forward = layer.attention, layer.feed_forward
        for linears in ((attention.q, attention.k, attention.v), (feed_forward.gate, feed_forward.up)):
            stack = weights.stacked(linears)
            assert (stack is not None) == copied
            if stack is not None:
                assert content(stack) == b"".join(parts.pop(linear.weight) for linear in linears)
                assert list(ggml.head(stack).ne)[:2] == [linears[0].n_in, sum(linear.n_out for linear in linears)]
                n_stacks += 1
    for name, expected in parts.items():
        assert content(weights[name]) == expected
        assert tuple(n for n in ggml.head(weights[name]).ne if n > 1) == file.tensors[name].shape
    assert weights.buffer_types == {"CPU" if copied else "mapped file": len(parts) + n_stacks}
    weights.close()


def test_projections_of_different_types_stay_apart(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(weight_type="F32", tensors={"blk.0.attn_k.weight": np.ones((32, 64), np.float16)})
    plan, weights = ModelPlan.from_gguf(GgufFile.open(path)), load(path, copied=True)
    first, second = ((layer.attention.q, layer.attention.k, layer.attention.v) for layer in plan.layers)
    assert weights.stacked(first) is None
    assert weights.stacked(second) is not None
    weights.close()


@pytest.mark.parametrize("tied", [False, True])
def test_repacked_where_llama_cpp_repacks(tiny_model: Callable[..., Path], tied: bool) -> None:
    path = tiny_model(weight_type="Q4_0", embedding=256, ff=256, tied=tied)
    with captured_log(LOG_INFO) as log:
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        model = llama.llama_model_load_from_file(str(path).encode(), params)
    llama.llama_model_free(model)
    theirs = {line.split(":")[1].split()[0] for line in log if "model buffer size" in line}
    weights = load(path)
    ours = set(weights.buffer_types) - {"mapped file", "CPU"}
    assert ours == theirs - {"CPU_Mapped", "CPU"}
    if ours:  # this processor has kernels for repacked Q4_0
        n_matrices = 2 * 4 + 1  # two layers of two stacks, output, down; and the output, a copy when tied
        assert sum(weights.buffer_types[name] for name in ours) == n_matrices
        assert weights.buffer_types["CPU"] == 0
    weights.close()


def test_a_large_model_stays_in_its_file(tiny_model: Callable[..., Path]) -> None:
    file = GgufFile.open(tiny_model())
    size = file.path.stat().st_size
    assert not prefers_copy(file, cpu_device(), available=7 * size)
    assert prefers_copy(file, cpu_device(), available=8 * size) == hasattr(mmap, "MADV_HUGEPAGE")


def test_progress_rises_to_one(tiny_model: Callable[..., Path]) -> None:
    seen: list[float] = []
    load(tiny_model(weight_type="Q4_0", embedding=256, ff=256), seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1
