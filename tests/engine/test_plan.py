"""Plans of good models, which llama.cpp loads as well, and the refusal of all others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.architectures import ARCHITECTURES
from engine.errors import ModelFileError, OctavoError, UnsupportedModel
from engine.gguf_file import GgufFile
from engine.plan import KvGroup, Linear, ModelPlan, Norm
from tests.reference import LlamaDecode

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
K_QUANT = {"embedding": 256, "ff": 256}

GOOD: dict[str, dict[str, Any]] = {
    "llama": {},
    "one head": {"heads": 1, "heads_kv": 1},
    "no grouped queries": {"heads_kv": 4},
    "tied": {"tied": True},
    "all biases": {"qkv_bias": True, "o_bias": True, "ffn_bias": True},
    "heads wider than the embedding": {"head_dim": 32},
    "rope factors": {"rope_factors": True},
    "linear scaling": {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "linear scaling, old key": {"keys": {"rope.scale_linear": 2.0}},
    "scaling of type none": {"keys": {"rope.scaling.type": "none", "rope.scaling.factor": 4.0}},
    "yarn": {"keys": YARN},
    "mistral's window, which is ignored": {"keys": {"attention.sliding_window": 32}},
    "no experts": {"keys": {"expert_count": 0}},
    "few keys": {
        "without_keys": (
            "llama.attention.key_length",
            "llama.attention.value_length",
            "llama.rope.dimension_count",
        )
    },
    "byte-level vocabulary": {"tokenizer": "gpt2"},
    "sentence-piece vocabulary": {"tokenizer": "spm", "vocab": 512},
    "f16": {"weight_type": "F16"},
    "bf16": {"weight_type": "BF16"},
    "q8_0": {"weight_type": "Q8_0"},
    "q4_0": {"weight_type": "Q4_0"},
    "mxfp4": {"weight_type": "MXFP4"},
    "q4_k": {"weight_type": "Q4_K", **K_QUANT},
    "q6_k": {"weight_type": "Q6_K", **K_QUANT},
    "iq4_xs": {"weight_type": "IQ4_XS", **K_QUANT},
    "qwen2": {"architecture": "qwen2"},
    "qwen2 without biases, tied": {"architecture": "qwen2", "qkv_bias": False, "tied": True},
    "qwen2 with a bias on the output": {"architecture": "qwen2", "tensors": {"output.bias": np.ones(96)}},
    "qwen3": {"architecture": "qwen3", "head_dim": 32},
}


def plan(path: Path) -> ModelPlan:
    return ModelPlan.from_gguf(GgufFile.open(path))


def refusal(path: Path, error: type[OctavoError]) -> str:
    with pytest.raises(error) as caught:
        plan(path)
    message = str(caught.value)
    assert type(caught.value) is error
    assert message.isprintable()
    assert message.endswith(".")
    return message


@pytest.mark.parametrize("name", GOOD)
def test_a_model_with_a_plan_is_one_that_llama_cpp_runs(name: str, tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(**GOOD[name])
    model = plan(path)
    with LlamaDecode(path) as reference:
        logits = reference.decode([1, 2, 3])
    assert logits.shape == (3, model.vocabulary)
    assert np.isfinite(logits).all()
    assert logits.std() > 0.1


def test_the_plan_names_every_tensor_once(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(qkv_bias=True, o_bias=True, ffn_bias=True, rope_factors=True)
    model = plan(path)
    named = {model.token_embedding, *names(model.output_norm), *names(model.output)}
    for layer in model.layers:
        attention, ffn = layer.attention, layer.feed_forward
        assert attention.rope.factors is not None
        named.add(attention.rope.factors)
        for part in (layer.attention_norm, layer.feed_forward_norm, attention.q, attention.k, attention.v):
            named.update(names(part))
        for part in (attention.output, ffn.gate, ffn.up, ffn.down):
            named.update(names(part))
    assert named == set(GgufFile.open(path).tensors)


def names(part: Linear | Norm) -> set[str]:
    return {part.weight} | ({part.bias} if part.bias else set())


def test_shapes_in_the_plan_are_those_of_the_tensors(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model("qwen3", head_dim=32, layers=3, ff=160, context=4096)
    file, model = GgufFile.open(path), plan(path)
    assert (model.embedding, model.vocabulary, model.context_train, len(model.layers)) == (64, 96, 4096, 3)
    assert model.norm_epsilon == pytest.approx(1e-5)
    for layer in model.layers:
        attention, ffn = layer.attention, layer.feed_forward
        for linear in (attention.q, attention.k, attention.v, attention.output, ffn.gate, ffn.up, ffn.down):
            assert file.tensors[linear.weight].shape == (linear.n_in, linear.n_out)
        assert (attention.n_head, attention.n_head_kv) == (4, 2)
        assert (attention.head_dim_k, attention.head_dim_v) == (32, 32)
        assert attention.scale == pytest.approx(32**-0.5)
        assert attention.q_norm is not None
        assert file.tensors[attention.q_norm.weight].shape == (32,)
    assert model.kv_groups == (KvGroup((0, 1, 2), 32, 32, 2, None),)


def test_a_tied_output_is_the_token_embedding(tiny_model: Callable[..., Path]) -> None:
    tied, untied = plan(tiny_model(tied=True)), plan(tiny_model())
    assert tied.tied
    assert tied.output.weight == tied.token_embedding
    assert not untied.tied
    assert untied.output.weight == "output.weight"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_rope_by_default(name: str, tiny_model: Callable[..., Path]) -> None:
    rope = plan(tiny_model(name)).layers[0].attention.rope
    assert rope.mode == {"llama": 0, "qwen2": 2, "qwen3": 2}[name]
    assert (rope.n_dims, rope.n_ctx_orig, rope.freq_base, rope.factors) == (16, 256, 10000, None)
    assert (rope.freq_scale, rope.ext_factor, rope.attn_factor, rope.beta_fast, rope.beta_slow) == (1, 0, 1, 32, 1)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, (0.25, 0, 1, 256)),
        ({"rope.scale_linear": 2.0}, (0.5, 0, 1, 256)),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, (1, 0, 1, 256)),
        (YARN, (0.25, 1, 1, 64)),
        (YARN | {"rope.scaling.attn_factor": 1.5}, (0.25, 1, 1.5, 64)),
    ],
)
def test_rope_scaling(
    keys: dict[str, Any], expected: tuple[float, float, float, int], tiny_model: Callable[..., Path]
) -> None:
    rope = plan(tiny_model(keys=keys)).layers[1].attention.rope
    assert (rope.freq_scale, rope.ext_factor, rope.attn_factor, rope.n_ctx_orig) == pytest.approx(expected, abs=1e-6)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown architecture": ({"architecture": "mamba"}, "architecture 'mamba'"),
    "architecture with escapes": ({"architecture": "\x1b[31m"}, "architecture '␛[31m'"),
    "unknown key": ({"keys": {"attention.scale": 0.1}}, "key 'llama.attention.scale'"),
    "unknown tensor": ({"tensors": {"blk.1.attn_sinks.weight": np.ones(4)}}, "tensor 'blk.1.attn_sinks.weight'"),
    "tensor of a layer too many": ({"tensors": {"blk.2.attn_norm.weight": np.ones(64)}}, "'blk.2.attn_norm.weight'"),
    "a bias on the token embedding": ({"tensors": {"token_embd.bias": np.ones(96)}}, "tensor 'token_embd.bias'"),
    "norms of queries in llama": ({"tensors": {"blk.0.attn_q_norm.weight": np.ones(16)}}, "attn_q_norm"),
    "fused weights": (
        {
            "tensors": {
                "blk.0.attn_qkv.weight": np.ones((128, 64)),
                "blk.0.attn_q.weight": None,
                "blk.0.attn_k.weight": None,
                "blk.0.attn_v.weight": None,
            }
        },
        "tensor 'blk.0.attn_qkv.weight'",
    ),
    "mixture of experts": ({"keys": {"expert_count": 8, "expert_used_count": 2}}, "mixture of experts"),
    "longrope": ({"keys": {"rope.scaling.type": "longrope"}}, "rope scaling of type 'longrope'"),
    "a shorter context": ({"keys": {"rope.scaling.factor": 0.5}}, "rope scaling factor of 0.5"),
    "heads that differ by layer": ({"keys": {"attention.head_count_kv": [2, 1]}}, "differs from layer to layer"),
    "a norm in F16": ({"weight_type": "F16", "tensors": {"output_norm.weight": np.ones((1, 64))}}, "stored as f16"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_models_for_the_contiguous_engine(name: str, tiny_model: Callable[..., Path]) -> None:
    options, words = UNSUPPORTED[name]
    assert words in refusal(tiny_model(**options), UnsupportedModel)


DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "no layers": ({"keys": {"block_count": 0}}, "'llama.block_count' is 0"),
    "absurdly many layers": ({"keys": {"block_count": 513}}, "'llama.block_count' is 513"),
    "a layer without tensors": ({"keys": {"block_count": 3}}, "no tensor 'blk.2.attn_norm.weight'"),
    "no heads": ({"keys": {"attention.head_count": 0}}, "'llama.attention.head_count' is 0"),
    "no KV heads": ({"keys": {"attention.head_count_kv": 0}}, "'llama.attention.head_count_kv' is 0"),
    "heads that do not divide": ({"keys": {"attention.head_count_kv": 3}}, "4 attention heads cannot share 3"),
    "more heads than there are": ({"keys": {"attention.head_count": 8}}, "is 64×64"),
    "odd head size": ({"head_dim": 15}, "head size 15 is odd"),
    "head size 0": ({"keys": {"attention.key_length": 0}}, "'llama.attention.key_length' is 0"),
    "values of another size": ({"keys": {"attention.value_length": 8}}, "'llama.attention.value_length'"),
    "rope of half a head": ({"keys": {"rope.dimension_count": 8}}, "'llama.rope.dimension_count'"),
    "no width": ({"keys": {"embedding_length": 0}}, "'llama.embedding_length' is 0"),
    "another width": ({"keys": {"embedding_length": 32}}, "'token_embd.weight' is 64×96"),
    "width 2³¹": ({"keys": {"embedding_length": 2**31}}, "'llama.embedding_length' is 2147483648"),
    "another inner width": ({"keys": {"feed_forward_length": 128}}, "'blk.0.ffn_gate.weight'"),
    "another vocabulary": ({"keys": {"vocab_size": 95}, "tensors": {"token_embd.weight": np.ones((96, 64))}}, "token"),
    "fewer tokens than rows": (
        {"tokenizer": "gpt2", "tensors": {"token_embd.weight": np.ones((271, 64))}},
        "'token_embd.weight' is 64×271",
    ),
    "context 0": ({"context": 0}, "'llama.context_length' is 0"),
    "negative epsilon": ({"keys": {"attention.layer_norm_rms_epsilon": -1.0}}, "must be a number"),
    "epsilon that is no number": ({"keys": {"attention.layer_norm_rms_epsilon": float("nan")}}, "must be a number"),
    "rope base 0": ({"keys": {"rope.freq_base": 0.0}}, "'llama.rope.freq_base' must be a number above 0"),
    "rope base that is a text": ({"keys": {"rope.freq_base": "10000"}}, "'llama.rope.freq_base'"),
    "scaling that is a number": ({"keys": {"rope.scaling.type": 1}}, "'llama.rope.scaling.type' must be a text"),
    "a size that is a fraction": ({"keys": {"embedding_length": 64.0}}, "must be a whole number"),
    "a size that is a truth value": ({"keys": {"block_count": True}}, "must be a whole number"),
    "no context length": ({"without_keys": ["llama.context_length"]}, "no key 'llama.context_length'"),
    "no epsilon": ({"without_keys": ["llama.attention.layer_norm_rms_epsilon"]}, "no key"),
    "a short norm": ({"tensors": {"output_norm.weight": np.ones(32)}}, "'output_norm.weight' is 32"),
    "a short bias": ({"tensors": {"blk.1.attn_q.bias": np.ones(63)}}, "'blk.1.attn_q.bias' is 63"),
    "a transposed matrix": ({"tensors": {"blk.0.ffn_up.weight": np.ones((64, 96))}}, "is 96×64"),
    "a dimension 0": ({"tensors": {"blk.0.ffn_up.weight": np.ones((0, 64))}}, "ffn_up.weight' has no elements"),
    "a projector for images": ({"architecture": "clip", "metadata": {"general.type": "mmproj"}}, "'mmproj' data"),
    "a third dimension": ({"tensors": {"blk.0.ffn_up.weight": np.ones((2, 96, 64))}}, "is 64×96×2"),
    "short rope factors": ({"tensors": {"rope_freqs.weight": np.ones(4)}}, "'rope_freqs.weight' is 4"),
    "no output norm": ({"tensors": {"output_norm.weight": None}}, "no tensor 'output_norm.weight'"),
    "no embeddings": ({"tensors": {"token_embd.weight": None}}, "no tensor 'token_embd.weight'"),
    "qwen3 without its norms": (
        {"architecture": "qwen3", "tensors": {"blk.0.attn_q_norm.weight": None}},
        "no tensor 'blk.0.attn_q_norm.weight'",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_files_that_contradict_themselves(name: str, tiny_model: Callable[..., Path]) -> None:
    options, words = DAMAGED[name]
    assert words in refusal(tiny_model(**options), ModelFileError)


def test_the_starter_model(starter_path: Path) -> None:
    model = plan(starter_path)
    assert (model.architecture, model.vocabulary, model.embedding, len(model.layers)) == ("llama", 49152, 576, 30)
    assert model.tied
    assert model.kv_groups == (KvGroup(tuple(range(30)), 64, 64, 3, None),)
    assert model.layers[29].attention.rope.freq_base == 100000
