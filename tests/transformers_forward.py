"""What transformers computes from a checkpoint, in numpy: the independent oracle for conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.tiny_checkpoint import Checkpoint


def forward(checkpoint: Checkpoint, tokens: Sequence[int]) -> np.ndarray:
    """Logits [n_tokens, vocabulary], as modeling_llama.py, modeling_qwen2.py and modeling_qwen3.py define them."""
    config, weights = checkpoint.config, {name: array.astype(np.float64) for name, array in checkpoint.tensors.items()}
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    n = len(tokens)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + config["rms_norm_eps"]) * weights[name + ".weight"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[name + ".weight"].T + weights.get(name + ".bias", 0.0)

    frequencies, scale = _rope(config, head_dim)
    angles = np.arange(n)[:, None] * np.concatenate([frequencies, frequencies])
    cos, sin = np.cos(angles)[:, None] * scale, np.sin(angles)[:, None] * scale

    def rotated(x: np.ndarray) -> np.ndarray:
        first, second = np.split(x, 2, axis=-1)
        return x * cos + np.concatenate([-second, first], axis=-1) * sin

    x = weights["model.embed_tokens.weight"][list(tokens)]
    for index in range(config["num_hidden_layers"]):
        attention, mlp = f"model.layers.{index}.self_attn.", f"model.layers.{index}.mlp."
        h = norm(x, f"model.layers.{index}.input_layernorm")
        q = linear(h, attention + "q_proj").reshape(n, heads, head_dim)
        k = linear(h, attention + "k_proj").reshape(n, kv_heads, head_dim)
        v = linear(h, attention + "v_proj").reshape(n, kv_heads, head_dim)
        if attention + "q_norm.weight" in weights:
            q, k = norm(q, attention + "q_norm"), norm(k, attention + "k_norm")
        q, k = rotated(q), rotated(k)
        k, v = (np.repeat(one, heads // kv_heads, axis=1) for one in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(head_dim)
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(axis=-1, keepdims=True), v)
        x = x + linear(mixed.reshape(n, heads * head_dim), attention + "o_proj")
        h = norm(x, f"model.layers.{index}.post_attention_layernorm")
        gate = linear(h, mlp + "gate_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(h, mlp + "up_proj"), mlp + "down_proj")
    output = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ weights[output].T


def _rope(config: Mapping[str, Any], head_dim: int) -> tuple[np.ndarray, float]:
    """Frequencies and the factor on cosines and sines, as modeling_rope_utils.py defines them."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = rope.get("rope_theta", config.get("rope_theta"))
    frequencies = 1 / base ** (np.arange(0, head_dim, 2) / head_dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        return frequencies / rope["factor"], 1.0
    if kind == "llama3":
        return np.array([_llama3(frequency, rope) for frequency in frequencies]), 1.0
    if kind == "yarn":
        context = rope["original_max_position_embeddings"]

        def dimension(rotations: float) -> float:
            return head_dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), head_dim - 1)
        ramp = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
        scale = 0.1 * rope.get("mscale", 1) * math.log(rope["factor"]) + 1
        scale /= 0.1 * rope.get("mscale_all_dim", 0) * math.log(rope["factor"]) + 1
        scale = rope.get("attention_factor", scale)
        return frequencies / rope["factor"] * ramp + frequencies * (1 - ramp), scale
    return frequencies, 1.0


def _llama3(frequency: float, rope: Mapping[str, Any]) -> float:
    wavelength = 2 * math.pi / frequency
    context, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
    if wavelength < context / high:
        return frequency
    if wavelength > context / low:
        return float(frequency / rope["factor"])
    smooth = (context / wavelength - low) / (high - low)
    return float((1 - smooth) * frequency / rope["factor"] + smooth * frequency)
