"""A few small models that are good to begin with, so that a first choice needs no search and no network.

Sizes are those that the repositories had when this was written, in bytes; what is downloaded may differ a little.
"""

from __future__ import annotations

from typing import NamedTuple


class RecommendedModel(NamedTuple):
    """reference: what `octavo pull` takes. kv_bytes: a token's keys and values as f16. context: it was trained on."""

    reference: str
    title: str
    about: str
    n_bytes: int
    kv_bytes: int
    context: int


_MB = 10**6

RECOMMENDED = (
    RecommendedModel(
        "Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen3 0.6B", "tiny, thinks before it answers", 639 * _MB, 114_688, 40_960
    ),
    RecommendedModel(
        "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "Gemma 3 1B", "small, speaks many languages", 806 * _MB, 26_624, 32_768
    ),
    RecommendedModel(
        "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "Llama 3.2 1B", "small and quick", 808 * _MB, 32_768, 131_072
    ),
    RecommendedModel(
        "HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M",
        "SmolLM2 1.7B",
        "small, open data",
        1_056 * _MB,
        196_608,
        8_192,
    ),
    RecommendedModel(
        "Qwen/Qwen3-1.7B-GGUF:Q8_0", "Qwen3 1.7B", "thinks before it answers", 1_834 * _MB, 114_688, 40_960
    ),
    RecommendedModel(
        "bartowski/Llama-3.2-3B-Instruct-GGUF:Q4_K_M",
        "Llama 3.2 3B",
        "a good all-rounder",
        2_019 * _MB,
        114_688,
        131_072,
    ),
    RecommendedModel("Qwen/Qwen3-4B-GGUF:Q4_K_M", "Qwen3 4B", "the best of these", 2_497 * _MB, 147_456, 40_960),
)
