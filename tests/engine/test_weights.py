"""Where weights lie: what is mapped is the file itself, what is repacked multiplies as before."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import ggml
from engine.devices import cpu_device
from engine.gguf_file import GgufFile
from engine.native import LOG_INFO, captured_log, llama
from engine.plan import ModelPlan
from engine.weights import Weights


def load(path: Path, progress: Callable[[float], None] = lambda _fraction: None) -> Weights:
    file = GgufFile.open(path)
    return Weights(file, ModelPlan.from_gguf(file), cpu_device(), progress)


def test_mapped_tensors_are_the_bytes_of_the_file(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(weight_type="F32")
    weights, data = load(path), path.read_bytes()
    for info in GgufFile.open(path).tensors.values():
        tensor = weights[info.name]
        assert tuple(n for n in ggml.head(tensor).ne if n > 1) == tuple(n for n in info.shape if n > 1)
        assert ctypes.string_at(ggml.get_data(tensor), info.n_bytes) == data[info.offset : info.offset + info.n_bytes]
    assert set(weights.buffer_types) == {"mapped file"}
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
    ours = {name for name in weights.buffer_types if name != "mapped file"}
    assert ours == theirs - {"CPU_Mapped", "CPU"}
    if ours:  # this processor has kernels for repacked Q4_0
        n_matrices = 2 * 7 + 1  # two layers and the output, which is a copy of the embedding when tied
        assert sum(weights.buffer_types[name] for name in ours) == n_matrices
    weights.close()


def test_progress_rises_to_one(tiny_model: Callable[..., Path]) -> None:
    seen: list[float] = []
    load(tiny_model(weight_type="Q4_0", embedding=256, ff=256), seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1
