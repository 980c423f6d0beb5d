"""What a caller asks for (Request) and the state of each stream of tokens that answers it (Sequence)."""

from __future__ import annotations

import enum
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.config import KvType

if TYPE_CHECKING:  # they need numpy, and the app imports this module without it
    from engine.blocks import BlockTable
    from engine.prefix_cache import CachedBlock
    from engine.speculation import Drafter


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
    owner: whose blocks these are, a number above 0 that the caller chose, such as that of a chat.
    """

    prompt: tuple[int, ...]
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    stop_tokens: frozenset[int] = frozenset()
    priority: Priority = Priority.INTERACTIVE
    n: int = 1
    owner: int = 1


@dataclass(frozen=True)
class SequenceStats:
    """What one answer cost; times in seconds from `submit`, on a monotonic clock, 0 for what did not happen.

    reused/computed: prompt tokens found in the cache / prompt tokens actually run; what is computed again after
    a preemption is not counted. Of n answers, the first computes the prompt and the others reuse all of it.
    prefill_s: from the first step that ran a part of the prompt to the first token.
    decode_s: from the first token to the last.
    blocks_used: KV blocks that the unfinished answers of the request referred to when this one ended, shared ones
    counted once.
    drafted/accepted: draft tokens that were verified / that became tokens of the answer.
    """

    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    generated_tokens: int
    ttft_s: float
    prefill_s: float
    decode_s: float
    blocks_used: int
    drafted_tokens: int = 0
    accepted_tokens: int = 0


class TokenEvent(NamedTuple):
    """One token of one answer, or its end.

    index: which of the request's n answers. token_id: None when the event carries only the end.
    finish: set on exactly one event per answer, its last, together with `stats`.
    The token that ended an answer (a stop token) is not emitted.
    """

    request_id: int
    index: int  # type: ignore[assignment] # hides tuple.index, which an event has no use for
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
    type_k, type_v: what keys and values are stored as.
    """

    block_size: int
    block_bytes: int
    blocks_total: int
    blocks_used: int
    blocks_cached: int
    bytes_used: int
    bytes_resident: int
    bytes_contiguous_would_reserve: int
    type_k: KvType
    type_v: KvType


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

    token_ids: prompt, then generated tokens. n_computed: tokens whose K and V are in the pool (reused ones
    included), always less than len(token_ids), since the last token is computed to draw the next.
    n_computed_before: the most that n_computed was before a preemption; up to there, tokens are computed again.
    tables: one block table per KV group.
    hashes: digest of each full block of `token_ids` that was hashed so far, in order.
    chains: per KV group, the prefix cache's entry of each full block that is in the pool, in order.
    compact_from: while n_computed is below, nobody asks again whether its blocks should be moved together.
    n_drafted, n_accepted: draft tokens verified so far, and those that became tokens of the answer.
    drafter: what Speculation keeps for this sequence, once it decodes alone.
    """

    sequence_id: int
    request_id: int
    index: int
    request: Request
    token_ids: list[int]
    tables: SequenceOf[BlockTable]
    status: SequenceStatus = SequenceStatus.WAITING
    n_computed: int = 0
    n_computed_before: int = 0
    n_reused: int = 0
    submitted_at: float = 0.0
    prefill_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    hashes: list[bytes] = field(default_factory=list)
    chains: SequenceOf[list[CachedBlock]] = ()
    compact_from: int = 0
    n_drafted: int = 0
    n_accepted: int = 0
    drafter: Drafter | None = None

    @property
    def n_prompt(self) -> int:
        """Number of prompt tokens."""
        return len(self.request.prompt)

    @property
    def n_generated(self) -> int:
        """Number of tokens generated so far."""
        return len(self.token_ids) - self.n_prompt

    @property
    def n_remaining(self) -> int:
        """Known tokens that are not in the pool: 1 for a sequence that decodes."""
        return len(self.token_ids) - self.n_computed

    def n_left(self, window: int) -> int:
        """Tokens that the answer may still get, where a sequence holds at most `window` tokens."""
        in_window, wanted = window - len(self.token_ids), self.request.max_tokens
        return in_window if wanted is None else min(in_window, wanted - self.n_generated)

    @property
    def rank(self) -> tuple[Priority, int]:
        """Place in line, the smallest first: by class, then in the order of submission."""
        return self.request.priority, self.sequence_id

    def stats(self, blocks_used: int) -> SequenceStats:
        """What the answer cost so far; see SequenceStats for `blocks_used`."""
        started, first, last = self.prefill_at, self.first_token_at, self.last_token_at
        n_computed = max(self.n_computed, self.n_computed_before)
        return SequenceStats(
            prompt_tokens=self.n_prompt,
            reused_tokens=self.n_reused,
            computed_tokens=min(n_computed, self.n_prompt) - self.n_reused,
            generated_tokens=self.n_generated,
            ttft_s=first - self.submitted_at if first is not None else 0.0,
            prefill_s=first - started if first is not None and started is not None else 0.0,
            decode_s=last - first if first is not None and last is not None else 0.0,
            blocks_used=blocks_used,
            drafted_tokens=self.n_drafted,
            accepted_tokens=self.n_accepted,
        )
