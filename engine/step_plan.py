"""What the scheduler asks the engine to do in one step, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.blocks import BlockCopy
from engine.sequence import Sequence


class Chunk(NamedTuple):
    """Compute tokens start .. start + n_tokens - 1 of a sequence; its tables have slots for them.

    samples: the sequences that draw a token from the logits of the chunk's last row. Nobody in mid-prompt,
    else the sequence itself, followed by those that fork from it when a prompt with several answers is complete.
    draft: the last of the tokens, if they are guesses behind the sequence's own. Then every row from its last own
    token on has logits, and a token is drawn from each, up to the first that differs from the draft.
    """

    sequence: Sequence
    start: int
    n_tokens: int
    samples: tuple[Sequence, ...]
    draft: tuple[int, ...] = ()

    @property
    def n_own(self) -> int:
        """Tokens that belong to the sequence, and are no guesses."""
        return self.n_tokens - len(self.draft)


@dataclass
class StepPlan:
    """One forward pass. `copies` are done first, in order; then all chunks run together.

    No slot is written by two chunks, and none that another sequence or the prefix cache reads.
    """

    chunks: list[Chunk] = field(default_factory=list)
    copies: list[BlockCopy] = field(default_factory=list)

    @property
    def n_tokens(self) -> int:
        """Tokens of all chunks."""
        return sum(chunk.n_tokens for chunk in self.chunks)

    @property
    def lone_decode(self) -> Chunk | None:
        """The only chunk, if it goes on with an answer that has begun."""
        if len(self.chunks) != 1:
            return None
        [chunk] = self.chunks
        is_decode = chunk.n_own == 1 and chunk.sequence.n_generated > 0
        return chunk if is_decode and chunk.sequence.n_remaining == 1 else None
