"""One row per architecture that the paged engine has a graph for.

A row holds only what a file does not say. Everything else (biases, norms of queries and keys, a tied
output, rope factors, scaling) is decided from the file's tensors and keys in engine/plan.py.
"""

from __future__ import annotations

from dataclasses import dataclass

ROPE_NORMAL, ROPE_NEOX = 0, 2
"""Pairs that rotary position embedding turns: neighbours (2i, 2i + 1), or halves (i, i + n/2). From ggml.h."""


@dataclass(frozen=True)
class Architecture:
    """What distinguishes an architecture from plain Llama.

    rope_mode: ROPE_NORMAL or ROPE_NEOX. query_key_norm: queries and keys of each head are normalised
    before they are rotated, and a file without the weights for it is damaged.
    """

    name: str
    rope_mode: int = ROPE_NORMAL
    query_key_norm: bool = False


ARCHITECTURES = {
    row.name: row
    for row in (
        Architecture("llama"),
        Architecture("qwen2", rope_mode=ROPE_NEOX),
        Architecture("qwen3", rope_mode=ROPE_NEOX, query_key_norm=True),
    )
}
"""By general.architecture."""
