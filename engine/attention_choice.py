"""Which composition of operations serves which shape of a batch, over KvLayout.PACKED."""

from __future__ import annotations

from dataclasses import dataclass

FLASH_TILE = 64
"""Queries per tile of ggml's flash attention (ggml_fa_tile_config::Q); fewer fall back to slow loops."""

NEVER = 2**30
"""More columns than any cache has."""


@dataclass(frozen=True)
class AttentionChoice:
    """Processors differ, so engine/tuning.py measures these; the values here are those of two AVX-512 cores.

    unpacked_columns: a decode that reads at most so many slots multiplies head by head: two barriers for each KV head
        of a packed product are not earned back.
    ahead_columns: from so many slots on, a decode or short chunk first reads the keys once in long rows. The packed
        product deals its rows of one head to the threads in small pieces, which defeats the processor's own reading
        ahead.
    flash: chunks of FLASH_TILE tokens and more gather keys and values and leave the rest to flash attention; else they
        are packed like short ones, in blocks of queries.
    """

    unpacked_columns: int = 256
    ahead_columns: int = 320
    flash: bool = True
