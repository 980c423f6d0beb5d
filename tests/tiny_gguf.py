"""Tiny GGUF files with random weights, in every variant that the engine claims to run."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter

from engine.native import library

_quantize = library.ggml_quantize_chunk
_quantize.restype = ctypes.c_size_t
_quantize.argtypes = (
    ctypes.c_int,
    *(ctypes.c_void_p,) * 2,
    *(ctypes.c_int64,) * 3,
    ctypes.c_void_p,
)
_row_size = library.ggml_row_size
_row_size.restype = ctypes.c_size_t
_row_size.argtypes = (ctypes.c_int, ctypes.c_int64)

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6
"""enum llama_token_type: tokenizer.ggml.token_type."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""A chat template that the control tokens of the 'gpt2' vocabulary serve."""


def write_tiny(
    path: Path,
    architecture: str = "llama",
    *,
    layers: int = 2,
    embedding: int = 64,
    heads: int = 4,
    heads_kv: int = 2,
    head_dim: int | None = None,
    ff: int = 96,
    vocab: int | None = None,
    context: int = 256,
    tied: bool = False,
    qkv_bias: bool | None = None,
    o_bias: bool = False,
    ffn_bias: bool = False,
    rope_factors: bool = False,
    weight_type: str = "F32",
    tokenizer: str = "none",
    chat_template: str | None = None,
    seed: int = 0,
    keys: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    without_keys: Collection[str] = (),
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> Path:
    """Write a model to `path` and return the path.

    head_dim: None is embedding / heads. vocab: number of tokens; None is 96 without a tokenizer, otherwise
    what the tokenizer has. qkv_bias: None is what real models of the architecture have.
    weight_type: of the matrices, a name of enum ggml_type; rows must divide into its blocks (32, or 256 for
    K-quants). tokenizer: 'none', 'gpt2' (byte-level BPE) or 'spm'. keys: hyper-parameters to add or replace,
    without the architecture's prefix. metadata: the same with full names. without_keys: full names to leave out.
    tensors: arrays ([n_out, n_in], numpy's order) to add or replace, or None to leave one out; F16 ones stay F16.
    """
    head_dim = head_dim or embedding // heads
    vocabulary = _vocabulary(tokenizer, vocab)
    values: dict[str, Any] = {
        f"{architecture}.{name}": value
        for name, value in {
            "vocab_size": len(vocabulary["tokenizer.ggml.tokens"]) if tokenizer != "none" else vocab or 96,
            "context_length": context,
            "embedding_length": embedding,
            "block_count": layers,
            "feed_forward_length": ff,
            "attention.head_count": heads,
            "attention.head_count_kv": heads_kv,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.dimension_count": head_dim,
            **(keys or {}),
        }.items()
    }
    n_vocab = values[f"{architecture}.vocab_size"]
    values |= vocabulary | {"tokenizer.chat_template": chat_template} | dict(metadata or {})

    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray | None] = {}

    def linear(name: str, n_in: int, n_out: int, bias: bool = False) -> None:
        arrays[name + ".weight"] = rng.normal(0, 0.25, (n_out, n_in))
        if bias:
            arrays[name + ".bias"] = rng.normal(0, 0.25, n_out)

    def norm(name: str, n: int) -> None:
        arrays[name + ".weight"] = rng.normal(1, 0.25, n)

    linear("token_embd", embedding, n_vocab)
    if rope_factors:
        arrays["rope_freqs.weight"] = rng.uniform(1, 8, head_dim // 2)
    for index in range(layers):
        block = f"blk.{index}."
        norm(block + "attn_norm", embedding)
        with_bias = architecture == "qwen2" if qkv_bias is None else qkv_bias
        linear(block + "attn_q", embedding, heads * head_dim, with_bias)
        linear(block + "attn_k", embedding, heads_kv * head_dim, with_bias)
        linear(block + "attn_v", embedding, heads_kv * head_dim, with_bias)
        linear(block + "attn_output", heads * head_dim, embedding, o_bias)
        if architecture == "qwen3":
            norm(block + "attn_q_norm", head_dim)
            norm(block + "attn_k_norm", head_dim)
        norm(block + "ffn_norm", embedding)
        linear(block + "ffn_gate", embedding, ff, ffn_bias)
        linear(block + "ffn_up", embedding, ff, ffn_bias)
        linear(block + "ffn_down", ff, embedding, ffn_bias)
    norm("output_norm", embedding)
    if not tied:
        linear("output", embedding, n_vocab)

    writer = GGUFWriter(path, architecture)
    for name, value in values.items():
        if value is not None and name not in without_keys:
            _add_value(writer, name, value)
    for name, array in (arrays | dict(tensors or {})).items():
        if array is not None:
            _add_tensor(writer, name, array, Type[weight_type] if array.ndim > 1 else Type.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_value(writer: GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)


def _add_tensor(writer: GGUFWriter, name: str, array: np.ndarray, kind: Type) -> None:
    if array.dtype == np.float16:
        writer.add_tensor(name, array)
        return
    source = np.ascontiguousarray(array, np.float32)
    if kind == Type.F32:
        writer.add_tensor(name, source)
        return
    n_in = source.shape[-1]
    data = np.empty((*source.shape[:-1], _row_size(kind, n_in)), np.uint8)
    _quantize(kind, source.ctypes.data, data.ctypes.data, 0, source.size // n_in, n_in, None)
    writer.add_tensor(name, data, raw_dtype=kind)


def _vocabulary(tokenizer: str, n: int | None) -> dict[str, Any]:
    if tokenizer == "none":
        return {"tokenizer.ggml.model": "none"}
    values = {"gpt2": _byte_level_bpe, "spm": _sentence_piece}[tokenizer]()
    tokens, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    spare = (n or len(tokens)) - len(tokens)
    if spare < 0:
        raise ValueError(f"the {tokenizer} vocabulary has {len(tokens)} tokens, more than {n}")
    tokens += [f"<|unused_{i}|>" for i in range(spare)]
    types += [UNUSED] * spare
    if "tokenizer.ggml.scores" in values:
        values["tokenizer.ggml.scores"] += [0.0] * spare
    return values


def _byte_level_bpe() -> dict[str, Any]:
    """All 256 bytes, a few merges, and the control tokens of ChatML; ids of bytes are in GPT-2's order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    # GPT-2 writes a byte as the character of that code, or where that is none, as one from U+0100 on.
    tokens = [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(len(others))]
    merges = ["h e", "Ġ t", "Ġt he", "i n", "Ġ a", "e r", "o n", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or"]
    tokens += [merge.replace(" ", "") for merge in merges]
    types = [NORMAL] * len(tokens)
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    ids = {token: len(tokens) + i for i, token in enumerate(control)}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens + control,
        "tokenizer.ggml.token_type": types + [CONTROL] * len(control),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": ids["<|endoftext|>"],
        "tokenizer.ggml.eos_token_id": ids["<|im_end|>"],
        "tokenizer.ggml.add_bos_token": False,
    }


def _sentence_piece() -> dict[str, Any]:
    """Llama 2's kind: unknown, begin, end, 256 bytes, letters and a few words; adds <s> at the beginning."""
    words = ["▁", *"abcdefghijklmnopqrstuvwxyz", "he", "ll", "hell", "hello", "▁hello", "▁t", "▁the", "th", "the"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + words
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259 + [float(len(word)) for word in words],
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(words),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }
