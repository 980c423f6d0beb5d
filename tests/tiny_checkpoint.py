"""Tiny Hugging Face checkpoints with random weights."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from models.conversion.convert import Conversion
from models.part_file import PartFile

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "eos_token_id": 2,
}

QWEN_2_REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def split_by(regex: str) -> dict[str, Any]:
    """A pre_tokenizer that cuts at a regular expression and leaves only the spelling of bytes to ByteLevel."""
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTE_LEVEL | {"use_regex": False}]}


def convert(folder: Path, out: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Convert a checkpoint as `octavo quantize` does it."""
    with PartFile(out) as part, Conversion(folder, part.part) as conversion:
        conversion.fill(progress)
        part.finish()


class Checkpoint(NamedTuple):
    """A checkpoint on disk. tensors: its weights as F32, after rounding to the type that they are stored in."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, np.ndarray]


def write_checkpoint(
    folder: Path,
    model_class: str = "LlamaForCausalLM",
    *,
    dtype: str = "F32",
    shards: int = 1,
    seed: int = 0,
    tokenizer: Mapping[str, Any] | bytes | None = None,
    tokenizer_config: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> Checkpoint:
    """Write a model into `folder`, which is made.

    dtype: F32, F16 or BF16. tokenizer: the object of a tokenizer.json, or the bytes of a tokenizer.model; None is
    `byte_level_tokenizer()`. config: values to add to those of CONFIG or to replace.
    """
    folder.mkdir(parents=True)
    tokenizer = byte_level_tokenizer() if tokenizer is None else tokenizer
    if isinstance(tokenizer, bytes):
        (folder / "tokenizer.model").write_bytes(tokenizer)
        n_tokens = len(PIECES)
    else:
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        n_tokens = 1 + max(
            *tokenizer["model"]["vocab"].values(), *(token["id"] for token in tokenizer["added_tokens"]), 0
        )
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config or {}))
    values = CONFIG | {"architectures": [model_class], "vocab_size": n_tokens} | dict(config or {})
    (folder / "config.json").write_text(json.dumps(values))
    tensors = {name: rounded(array, dtype) for name, array in random_tensors(values, seed).items()}
    names = list(tensors)
    files = {
        "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards]
        for i in range(shards)
    }
    for file, held in files.items():
        write_safetensors(folder / file, {name: tensors[name] for name in held}, dtype)
    if shards > 1:
        weight_map = {name: file for file, held in files.items() for name in held}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return Checkpoint(folder, values, tensors)


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of the weights, as transformers names and shapes them."""
    (model_class,) = config["architectures"]
    hidden, ff, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    q, kv = heads * head_dim, config["num_key_value_heads"] * head_dim
    attention_bias, mlp_bias = config.get("attention_bias", False), config.get("mlp_bias", False)
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}

    def linear(name: str, n_in: int, n_out: int, *, bias: bool) -> None:
        found[name + ".weight"] = (n_out, n_in)
        if bias:
            found[name + ".bias"] = (n_out,)

    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}."
        found[layer + "input_layernorm.weight"] = found[layer + "post_attention_layernorm.weight"] = (hidden,)
        qkv_bias = attention_bias or model_class == "Qwen2ForCausalLM"
        linear(layer + "self_attn.q_proj", hidden, q, bias=qkv_bias)
        linear(layer + "self_attn.k_proj", hidden, kv, bias=qkv_bias)
        linear(layer + "self_attn.v_proj", hidden, kv, bias=qkv_bias)
        linear(layer + "self_attn.o_proj", q, hidden, bias=attention_bias)
        if model_class == "Qwen3ForCausalLM":
            found[layer + "self_attn.q_norm.weight"] = found[layer + "self_attn.k_norm.weight"] = (head_dim,)
        linear(layer + "mlp.gate_proj", hidden, ff, bias=mlp_bias)
        linear(layer + "mlp.up_proj", hidden, ff, bias=mlp_bias)
        linear(layer + "mlp.down_proj", ff, hidden, bias=mlp_bias)
    found["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    return found


def random_tensors(config: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Weights around 0, those of norms around 1."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(float(name.endswith("norm.weight")), 0.25, shape) for name, shape in shapes(config).items()
    }


def write_empty_safetensors(path: Path, config: Mapping[str, Any]) -> None:
    """Write a file of F32 zeros that takes no room on the disk, and none in memory."""
    header, size = {}, 0
    for name, shape in shapes(config).items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [size, size + 4 * math.prod(shape)]}
        size += 4 * math.prod(shape)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + size)


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], dtype: str) -> None:
    """Write a file of arrays, all stored as `dtype`."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in tensors.items():
        stored = _bits(array, dtype)
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values that are left when they are stored as `dtype`, as F32."""
    if dtype == "BF16":
        return (array.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    return array.astype({"F32": np.float32, "F16": np.float16}[dtype]).astype(np.float32)


def _bits(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "BF16":
        return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return array.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()


MERGES = ["h e", "l l", "he ll", "hell o", "Ġ t", "Ġt he", "1 2", "o B"]
UNMERGED = ["xyz"]
"""Tokens that no merge yields."""


def byte_level_tokenizer(pre_tokenizer: Mapping[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    """The object of a tokenizer.json: all bytes, MERGES, UNMERGED, and a few added tokens.

    pre_tokenizer: None is Qwen 2's. model: values to add to the object `model` or to replace.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}
    tokens = [letters[byte] for byte in range(256)] + [merge.replace(" ", "") for merge in MERGES] + UNMERGED
    added = {"<|end|>": True, "<|start|>": False, "<think>": False}
    return {
        "added_tokens": [
            {"id": len(tokens) + i, "content": text, "special": special}
            for i, (text, special) in enumerate(added.items())
        ],
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer or split_by(QWEN_2_REGEX),
        "post_processor": None,
        "model": {
            "type": "BPE",
            "ignore_merges": False,
            "byte_fallback": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": MERGES,
        }
        | model,
    }


WORDS = ["▁", *"abcdefghilmorstw", "he", "ll", "▁t", "▁the", "hell", "hello", "▁hello"]
PIECES: list[tuple[str, float, int]] = [
    ("<unk>", 0.0, 2),
    ("<s>", 0.0, 3),
    ("</s>", 0.0, 3),
    *((f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)),
    *((word, -float(i), 1) for i, word in enumerate(WORDS[17:] + WORDS[:17])),
]
"""Text, score and type of sentencepiece tokens; of words the one that is joined first comes first."""


def sentencepiece_model(
    pieces: Sequence[tuple[str, float, int]] = PIECES, *, model_type: int = 2, add_dummy_prefix: bool = True
) -> bytes:
    """The bytes of a tokenizer.model. model_type: 1 is unigram, 2 is BPE."""
    data = b""
    for text, score, kind in pieces:
        spelled = text.encode()
        piece = b"\x0a" + _varint(len(spelled)) + spelled + b"\x15" + struct.pack("<f", score)
        piece += b"" if kind == 1 else b"\x18" + _varint(kind)
        data += b"\x0a" + _varint(len(piece)) + piece
    trainer = b"\x18" + _varint(model_type)
    normalizer = b"\x0a\x08identity" + b"\x18" + _varint(int(add_dummy_prefix))
    return data + b"\x12" + _varint(len(trainer)) + trainer + b"\x1a" + _varint(len(normalizer)) + normalizer


def _varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])
