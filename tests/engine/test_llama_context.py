"""llama.cpp's model and contiguous cache: loading, what can be reused, and the memory it takes."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.errors import MemoryLimitError, ModelFileError, UnsupportedModel
from engine.gguf_file import GgufFile
from engine.kv_types import KvTypes
from engine.llama_context import CHUNK, LlamaContext, kv_bytes_per_token
from engine.memory import resident_bytes
from tests.reference import F16, LlamaDecode

VOCAB = 96
TinyModel = Callable[..., Path]
Load = Callable[..., LlamaContext]


@pytest.fixture
def load() -> Iterator[Load]:
    contexts: list[LlamaContext] = []

    def make(path: Path, n_tokens: int | None = None) -> LlamaContext:
        config = EngineConfig(context=n_tokens, threads=1, device="cpu")
        contexts.append(LlamaContext(str(path), config, lambda _: None, flash=False))
        return contexts[-1]

    yield make
    for context in contexts:
        context.close()


def random_tokens(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, n).tolist()


def feed(context: LlamaContext, path: Path, prompt: list[int]) -> int:
    """Compute a prompt, check its last logits against llama_decode on an empty cache; returns the tokens reused."""
    reused = context.reuse_prefix(prompt)
    for start in range(reused, len(prompt), CHUNK):
        logits = context.decode(prompt[start : start + CHUNK])
    with LlamaDecode(path, n_ctx=2048, kv_type=F16) as oracle:
        np.testing.assert_allclose(logits, oracle.decode(prompt)[-1], rtol=0, atol=2e-3)
    assert context.held == prompt
    return reused


def test_the_common_beginning_is_reused_but_for_the_last_token(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    context = load(path)
    common = random_tokens(20)
    a, b = [*common, *random_tokens(30, seed=1)], [*common, *random_tokens(40, seed=2)]
    assert [feed(context, path, prompt) for prompt in (a, b, b, b[:10], a)] == [0, 20, 59, 9, 10]


def test_a_model_that_keeps_only_a_window_cannot_step_back_beyond_it(load: Load, tiny_model: TinyModel) -> None:
    layers = 4
    path = tiny_model(
        "cohere2",
        layers=layers,
        tied=True,
        context=2048,
        keys={"attention.sliding_window": 64, "attention.layer_norm_epsilon": 1e-5, "logit_scale": 1.0},
        tensors={f"blk.{layer}.ffn_norm.weight": None for layer in range(layers)},
    )
    context = load(path)
    long = random_tokens(3 * CHUNK)
    assert feed(context, path, long) == 0
    longer = [*long, *random_tokens(5, seed=1)]
    assert feed(context, path, longer) == len(long)
    assert feed(context, path, longer) == len(longer) - 1
    assert feed(context, path, [*long[:100], *random_tokens(5, seed=2)]) == 0
    assert context.bytes_reserved < 2048 * context.bytes_per_token


def test_a_recurrent_model_cannot_step_back(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model("mamba", heads=0, heads_kv=0, head_dim=1, **mamba(layers=2, embedding=64))
    context = load(path, 2048)
    prompt = random_tokens(CHUNK + 50)
    assert feed(context, path, prompt) == 0
    assert feed(context, path, [*prompt, *random_tokens(5, seed=1)]) == len(prompt)
    assert feed(context, path, prompt) == 0
    assert context.bytes_per_token == 0
    assert context.bytes_reserved > 0


def mamba(layers: int, embedding: int) -> dict[str, dict[str, object]]:
    inner, state, rank, kernel = 2 * embedding, 16, 4, 4
    rng = np.random.default_rng(1)
    tensors: dict[str, np.ndarray | None] = {}
    for block in (f"blk.{layer}." for layer in range(layers)):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"):
            tensors[f"{block}{name}.weight"] = None
        tensors[block + "ssm_in.weight"] = rng.normal(0, 0.2, (2 * inner, embedding))
        tensors[block + "ssm_conv1d.weight"] = rng.normal(0, 0.2, (inner, kernel))
        tensors[block + "ssm_conv1d.bias"] = rng.normal(0, 0.2, inner)
        tensors[block + "ssm_x.weight"] = rng.normal(0, 0.2, (rank + 2 * state, inner))
        tensors[block + "ssm_dt.weight"] = rng.normal(0, 0.2, (inner, rank))
        tensors[block + "ssm_dt.bias"] = rng.normal(0, 0.2, inner)
        tensors[block + "ssm_a"] = -rng.uniform(0.1, 1, (inner, state))
        tensors[block + "ssm_d"] = rng.normal(0, 0.2, inner)
        tensors[block + "ssm_out.weight"] = rng.normal(0, 0.2, (embedding, inner))
    keys = {"conv_kernel": kernel, "inner_size": inner, "state_size": state, "time_step_rank": rank}
    return {"keys": {f"ssm.{key}": value for key, value in keys.items()}, "tensors": tensors}


def test_the_whole_window_is_resident_from_the_start(load: Load, starter_path: Path) -> None:
    load(starter_path, 256).close()  # what the first load leaves behind does not count
    before = resident_bytes()
    context = load(starter_path, 4096)
    assert context.bytes_per_token == 30 * 3 * (64 + 64) * 2
    assert context.bytes_reserved == 4096 * context.bytes_per_token
    assert resident_bytes() - before > context.bytes_reserved


def test_kv_heads_may_differ_between_layers(tiny_model: TinyModel) -> None:
    path = tiny_model(layers=3, head_dim=16, keys={"attention.head_count_kv": [4, 0, 2]})
    assert kv_bytes_per_token(GgufFile.open(path), KvTypes()) == (4 + 0 + 2) * (16 + 16) * 2


def test_a_window_larger_than_memory_is_refused(load: Load, starter_path: Path) -> None:
    with pytest.raises(MemoryLimitError, match=r"needs .* TiB of KV memory.*use --context \d+ or less"):
        load(starter_path, 10**9)


def test_files_that_are_no_models(load: Load, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file"):
        load(tmp_path / "missing.gguf")
    (tmp_path / "text.gguf").write_text("Hello, this is text.")
    with pytest.raises(ModelFileError, match="not a GGUF"):
        load(tmp_path / "text.gguf")


def test_a_model_without_a_tensor_is_refused(load: Load, tiny_model: TinyModel) -> None:
    with pytest.raises(ModelFileError, match=r"\(tensor 'blk\.1\.ffn_up\.weight' not found\)"):
        load(tiny_model(tensors={"blk.1.ffn_up.weight": None}))


def test_an_architecture_that_nobody_knows_is_refused(load: Load, tiny_model: TinyModel) -> None:
    with pytest.raises(UnsupportedModel, match="does not know the architecture 'imaginary'"):
        load(tiny_model("imaginary"))


def test_a_model_that_does_not_continue_a_text_is_refused(load: Load, tiny_model: TinyModel) -> None:
    with pytest.raises(UnsupportedModel, match="'dream'"):  # a diffusion model
        load(tiny_model("dream"))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
def test_memory_that_the_system_refuses_is_an_error_for_people(load: Load, starter_path: Path) -> None:
    load(starter_path, 256).close()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 512 * 2**20, hard))
    try:
        with pytest.raises(MemoryLimitError, match=r"could not create a context of 40,000 tokens.*smaller --context"):
            load(starter_path, 40_000)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def test_closing_twice_is_harmless(load: Load, tiny_model: TinyModel) -> None:
    context = load(tiny_model())
    context.close()
    context.close()
