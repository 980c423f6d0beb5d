"""What is chosen by measurement on this machine and for this model, and the rules that choose from the times.

Plain data: the measurements are made in engine/attention_probe.py and engine/forward_probe.py, and may be shown in
another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.attention_choice import NEVER, AttentionChoice

DEFAULT_CHUNK_TOKENS = 512
"""Where nothing was measured."""

_NEARLY_BEST = 1.03
"""Smaller chunks and fewer threads are preferred until they take so much more time than the best: smaller chunks
keep others waiting for less, and fewer threads leave more of the machine to its other programs."""

_WORTH_READING_AHEAD = 1.02
"""Reading ahead must make a decode's attention faster by this factor."""


@dataclass(frozen=True)
class Tuning:
    """Settings of an engine. chunk_tokens: most tokens of one step. threads: of the CPU."""

    threads: int
    attention: AttentionChoice = field(default_factory=AttentionChoice)
    chunk_tokens: int = DEFAULT_CHUNK_TOKENS


class DecodeTimes(NamedTuple):
    """Seconds that a decode's attention takes in one layer, when it reads `columns` slots.

    unpacked: head by head. packed: the query heads of a KV head together. ahead: packed, after reading the keys once.
    """

    columns: int
    unpacked: float
    packed: float
    ahead: float


class ChunkTimes(NamedTuple):
    """Seconds that attention of a chunk of `n_tokens` after `n_known` tokens takes in one layer."""

    n_tokens: int
    n_known: int
    flash: float
    packed: float


class AttentionTimes(NamedTuple):
    """What was measured about attention: decodes by ascending columns, and chunks."""

    decodes: tuple[DecodeTimes, ...]
    chunks: tuple[ChunkTimes, ...]


class Speed(NamedTuple):
    """Tokens per second through the layers that were measured, with a setting of `value`."""

    value: int
    tokens_per_s: float


@dataclass(frozen=True)
class TuningReport:
    """Measurements and what was chosen from them; () where there was nothing to choose, or no good time to measure.

    processor: its name. chunks: speeds of prefill by chunk size, through `chunk_layers` layers without output.
    threads: speeds of decoding by number of threads, through `thread_layers` layers and the output. n_layers: of the
    whole model. remembered: whether the settings could be written to the file for the next start.
    """

    tuning: Tuning
    processor: str
    attention: AttentionTimes
    chunks: tuple[Speed, ...]
    chunk_layers: int
    threads: tuple[Speed, ...]
    thread_layers: int
    n_layers: int
    remembered: bool = False


def choose_attention(times: AttentionTimes) -> AttentionChoice:
    """The faster composition for each size.

    A decode is unpacked up to the largest size at which, and below which, that wins. Reading ahead begins at the
    smallest size above from which on it wins clearly.
    """
    unpacked_columns = 0
    for row in times.decodes:
        if row.unpacked >= min(row.packed, row.ahead):
            break
        unpacked_columns = row.columns
    ahead_columns = NEVER
    for row in reversed(times.decodes):
        if row.columns <= unpacked_columns or row.ahead * _WORTH_READING_AHEAD >= row.packed:
            break
        ahead_columns = row.columns
    flash = sum(row.flash for row in times.chunks) <= sum(row.packed for row in times.chunks)
    return AttentionChoice(unpacked_columns, ahead_columns, flash)


def smallest_nearly_best(speeds: Sequence[Speed]) -> int:
    """The smallest setting that is nearly as fast as the fastest one: of chunk sizes, or numbers of threads."""
    best = max(speed.tokens_per_s for speed in speeds)
    return min(speed.value for speed in speeds if speed.tokens_per_s * _NEARLY_BEST >= best)
