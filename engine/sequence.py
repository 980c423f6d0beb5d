"""What a caller asks for (Request) and the state of each stream of tokens that answers it (Sequence)."""

from __future__ import annotations

import enum
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.blocks import BlockTable


class Priority(enum.IntEnum):
    """Scheduling class; also the retention class of the blocks that a request leaves in the prefix cache."""

    INTERACTIVE = 0
    BACKGROUND = 1


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class SamplingParams:
    """How the next token is drawn. `temperature` 0 is greedy; `seed` None draws a fresh seed.

    The defaults are llama.cpp's.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    seed: int | None = None


@dataclass(frozen=True)
class Request:
    """A prompt and what to do with it.

    prompt: token ids. max_tokens: tokens to generate per answer, None up to the end of the context.
    stop_tokens: ids that end an answer (the end-of-generation tokens of the vocabulary).
    n: answers computed together from one prompt, which is stored once.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    priority: Priority = Priority.INTERACTIVE
    n: int = 1


@dataclass(frozen=True)
class SequenceStats:
    """What one answer cost; times in seconds from `submit`, on a monotonic clock.

    reused/computed: prompt tokens found in the prefix cache / prompt tokens actually run.
    prefill_s: from the first step that ran a part of the prompt to the first token; decode_s: from the first token to the last.
    """

    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    generated_tokens: int
    ttft_s: float
    prefill_s: float
    decode_s: float


class TokenEvent(NamedTuple):
    """One token of one answer, or its end.

    index: which of the request's n answers. token_id: None when the event carries only the end.
    finish: set on exactly one event per answer, its last, together with `stats`.
    The token that ended an answer (a stop token) is not emitted.
    """

    request_id: int
    index: int
    token_id: int | None
    finish: FinishReason | None = None
    stats: SequenceStats | None = None


class PrefillEvent(NamedTuple):
    """Progress of a prompt: `done` of `total` tokens are in the cache, `reused` of them were found there."""

    request_id: int
    done: int
    total: int
    reused: int


class KvStats(NamedTuple):
    """KV memory of an engine. Blocks are counted in use (referenced by a sequence) and cached (reusable).

    bytes_used: blocks in use, times the bytes of a block. bytes_resident: physical memory behind the pool.
    bytes_contiguous_would_reserve: what a contiguous cache of the same window holds from the start.
    """

    block_size: int
    blocks_total: int
    blocks_used: int
    blocks_cached: int
    bytes_used: int
    bytes_resident: int
    bytes_contiguous_would_reserve: int


class SequenceStatus(enum.Enum):
    """Where a sequence stands in the scheduler."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    FORKING = enum.auto()
    """One of n answers that waits for the prompt its sibling computes."""
    FINISHED = enum.auto()


@dataclass(eq=False)
class Sequence:
    """One stream of tokens being computed. The scheduler owns and mutates it.

    token_ids: prompt, then generated tokens. n_computed: tokens whose K and V are in the pool
    (reused ones included), always less than or equal to len(token_ids).
    tables: one block table per KV group.
    """

    sequence_id: int
    request_id: int
    index: int
    request: Request
    token_ids: list[int]
    tables: SequenceOf[BlockTable]
    status: SequenceStatus = SequenceStatus.WAITING
    n_computed: int = 0
    n_reused: int = 0
    submitted_at: float = 0.0
    prefill_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    hashes: list[bytes] = field(default_factory=list)
    """Digest of each full block of `token_ids` that was computed so far, in order."""

    @property
    def n_prompt(self) -> int:
        """Number of prompt tokens."""
        return len(self.request.prompt)

    @property
    def n_generated(self) -> int:
        """Number of tokens generated so far."""
        return len(self.token_ids) - self.n_prompt
