"""KV bytes of a token from metadata, against llama.cpp's own cache, the engine's, and published figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig, EngineKind
from engine.gguf_file import GgufFile, LongArray
from engine.kv_pool import KvLayout, bytes_per_slot
from engine.kv_size import kv_bytes_per_token
from engine.kv_types import KvType
from engine.llama_context import LlamaContext
from engine.plan import ModelPlan

KIB = 1024


def keys(architecture: str, **values: Any) -> dict[str, object]:
    """Hyper-parameters; two underscores stand for a full stop."""
    own = {f"{architecture}.{name.replace('__', '.')}": value for name, value in values.items()}
    return {"general.architecture": architecture, **own}


def heads(
    n_layers: int, n_heads: object, n_kv: object, size: int | None = None, embedding: int = 4096
) -> dict[str, Any]:
    shape = {"block_count": n_layers, "embedding_length": embedding}
    shape |= {"attention__head_count": n_heads, "attention__head_count_kv": n_kv}
    return shape | ({"attention__key_length": size, "attention__value_length": size} if size else {})


QWEN_NEXT = heads(48, 16, 2, 256, 2048)
GEMMA_4 = heads(4, 8, (2, 2, 1, 2), 512) | {
    "attention__key_length_swa": 256,
    "attention__value_length_swa": 256,
    "attention__sliding_window_pattern": (True, True, False, True),
}

KNOWN = {
    "Llama 3.1 8B: 128 KiB": (keys("llama", **heads(32, 32, 8)), 128 * KIB),
    "Qwen3 4B: 144 KiB, heads wider than the embedding": (keys("qwen3", **heads(36, 32, 8, 128, 2560)), 144 * KIB),
    "GPT-2: as many KV heads as heads": (
        keys("gpt2", block_count=12, embedding_length=768, attention__head_count=12),
        2 * 2 * 12 * 768,
    ),
    "Gemma 3 4B, windows counted as if they had none": (keys("gemma3", **heads(34, 8, 4, 256)), 136 * KIB),
    "DeepSeek V3: one vector of 512 + 64 for keys and values, 70.272 kB by its paper": (
        keys(
            "deepseek2",
            **heads(61, 128, 1, embedding=7168),
            attention__key_length=576,
            attention__value_length=512,
            attention__key_length_mla=192,
            attention__value_length_mla=128,
            attention__kv_lora_rank=512,
        ),
        70_272,
    ),
    "DeepSeek V2 Lite as it was converted before: full keys and values": (
        keys(
            "deepseek2",
            **heads(27, 16, 16, embedding=2048),
            attention__key_length=192,
            attention__value_length=128,
            attention__kv_lora_rank=512,
        ),
        27 * 16 * (192 + 128) * 2,
    ),
    "Qwen3 Next: every fourth layer, by the key": (keys("qwen3next", **QWEN_NEXT, full_attention_interval=4), 24 * KIB),
    "Qwen3 Next: every fourth layer, without the key": (keys("qwen3next", **QWEN_NEXT), 24 * KIB),
    "Qwen3.5: recurrent layers by name": (
        keys("qwen35", **heads(4, 16, 2, 256), attention__recurrent_layers=(True, False, True, True)),
        2 * KIB,
    ),
    "LFM2: no heads where there is a convolution": (
        keys("lfm2", **heads(4, 32, (0, 8, 0, 8), embedding=2048)),
        4 * KIB,
    ),
    "Gemma 4: other heads in windowed layers": (
        keys("gemma4", **GEMMA_4),
        2 * (3 * 2 * 2 * 256 + 2 * 512),
    ),
    "Gemma 4 E2B: the last layers use the keys of earlier ones": (
        keys("gemma4", **GEMMA_4, attention__shared_kv_layers=2),
        2 * (2 * 2 * 2 * 256),
    ),
    "GLM 4.5: the layer that predicts further tokens is not used": (
        keys("glm4moe", **heads(3, 96, 8, 128), nextn_predict_layers=1),
        2 * 2 * 2 * 8 * 128,
    ),
    "Nanbeige: layers passed twice": (keys("nanbeige", **heads(32, 32, 8), num_loops=2), 256 * KIB),
    "DeepSeek V3.2: an index of the keys besides": (
        keys(
            "deepseek32",
            **heads(2, 128, 1),
            attention__key_length=576,
            attention__value_length=512,
            attention__key_length_mla=192,
            attention__value_length_mla=128,
            attention__indexer__key_length=128,
        ),
        2 * 2 * (576 + 128),
    ),
    "Mamba: none": (keys("mamba", block_count=64, embedding_length=4096, attention__head_count=0), 0),
    "RWKV 7 in the shape of Qwen: none": (keys("arwkv7", **heads(28, 0, 4)), 0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_models(name: str) -> None:
    metadata, expected = KNOWN[name]
    assert kv_bytes_per_token(metadata) == expected


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_the_paged_engine_stores_as_much(architecture: str, tiny_model: Callable[..., Path]) -> None:
    file = GgufFile.open(tiny_model(architecture, layers=3, heads=6, heads_kv=3, head_dim=32, embedding=96))
    stored = bytes_per_slot(ModelPlan.from_gguf(file).kv_groups, KvLayout.PACKED.types(KvType.F16))
    assert kv_bytes_per_token(file.metadata) == stored


def test_llama_cpp_reserves_as_much(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(layers=3, head_dim=64, context=4096, keys={"attention.head_count_kv": [2, 2, 2]})
    config = EngineConfig(EngineKind.CONTIGUOUS, 4096, 1, "CPU", KvType.F16)
    context = LlamaContext(str(path), config, lambda _: None)
    reserved = context.bytes_reserved
    context.close()
    assert kv_bytes_per_token(GgufFile.open(path).metadata) == reserved / 4096


HOSTILE: dict[str, dict[str, object]] = {
    "nothing": {},
    "an architecture that is a number": {"general.architecture": 7},
    "no shape": keys("llama"),
    "no layers": keys("llama", **heads(32, 32, 8)) | {"llama.block_count": None},
    "negative layers": keys("llama", **heads(-1, 32, 8)),
    "too many layers": keys("llama", **heads(10**9, 32, 8)),
    "layers as text": keys("llama", **heads(32, 32, 8)) | {"llama.block_count": "32"},
    "layers as a fraction": keys("llama", **heads(32, 32, 8)) | {"llama.block_count": 32.0},
    "layers as yes": keys("llama", **heads(32, 32, 8)) | {"llama.block_count": True},
    "negative heads": keys("llama", **heads(32, 32, -8)),
    "heads of too few layers": keys("llama", **heads(32, 32, (8, 8))),
    "heads in a long array": keys("llama", **heads(32, 32, LongArray(2000))),
    "heads as texts": keys("llama", **heads(2, 32, ("8", "8"))),
    "heads of no size": keys("llama", **heads(32, 32, 8, embedding=0)),
    "an absurd size": keys("llama", **heads(32, 32, 8, 2**40)),
    "more shared layers than layers": keys("gemma4", **GEMMA_4, attention__shared_kv_layers=9),
    "attention every 0 layers": keys("qwen35", **heads(4, 16, 2, 256), full_attention_interval=0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_cannot_be_told(name: str) -> None:
    assert kv_bytes_per_token(HOSTILE[name]) is None


_names = [name.replace("__", ".") for name in {*heads(1, 1, 1, 1), *GEMMA_4, "num_loops", "nextn_predict_layers"}]
_names += ["full_attention_interval", "attention.recurrent_layers", "attention.key_length_mla"]
_numbers = st.integers(-3, 40) | st.booleans() | st.floats() | st.integers()
_values = _numbers | st.text(max_size=3) | st.lists(_numbers, max_size=4).map(tuple) | st.just(LongArray(5000))


@given(st.sampled_from(["llama", "qwen35", "gemma4"]), st.dictionaries(st.sampled_from(_names), _values))
def test_no_metadata_breaks_it(architecture: str, values: dict[str, object]) -> None:
    told = kv_bytes_per_token(
        {"general.architecture": architecture} | {f"{architecture}.{name}": value for name, value in values.items()}
    )
    assert told is None or told >= 0
