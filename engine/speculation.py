"""Whether a decode step verifies draft tokens, and how many: only where that is faster on this machine.

A step computes the last token together with draft tokens (prompt_lookup) and draws from each row of logits in turn,
as long as what is drawn is the draft's next token; all tokens drawn are the answer's. This is speculative sampling
(Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) with a draft that is certain of itself: accepting
token x with the target's probability p(x), and else drawing from p without x, is the same as drawing from p and
comparing. So each token is drawn from the logits, by the sampler and with the random numbers that it would have been
drawn with alone: what is wrong with a draft costs time and nothing else. (Logits of a step of several tokens are added
up in another order, as those of a prompt's chunks are; where two tokens are equal but for rounding, either may win.)

Time is what this module accounts for, in units of a plain step, one that computes one token:

- What it costs: the measured time of steps with drafts, relative to plain ones (StepCosts).
- What it yields: whether the text went on as the lookup said is known after every step, verified or not, so that
  acceptance is learned for free (Acceptance).
- What it may lose: time lost is paid from a small credit, which gains and 1 % of all plain steps fill up again. From
  800 tokens on that bounds the loss to 2 %, whatever the estimates say.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Container, Iterator
from collections.abc import Sequence as SequenceOf

from engine.prompt_lookup import PromptLookup
from engine.sequence import Sequence

LENGTHS = (3, 7, 11)
"""Draft tokens in a step. Few, so that graphs are used again, and with the last token multiples of four, the rows
that ggml's repacked kernels multiply together; below COPY_TOKENS of packed_attention."""

WORTHWHILE = 1.1
"""Speculation must be expected to be faster by this factor."""

CREDIT = 8.0
"""Most time that may be lost without a gain, in plain steps; a debt is no larger either."""

REFILL = 0.01
"""Credit that a plain step adds, in plain steps."""

FIRST_GUESS = 0.25
"""Cost of a draft token before any was measured, in plain steps: low, so that good drafts find out."""

NEXT_GUESS = 0.75
"""Cost of a draft token in steps that were never measured, compared with that in the next shorter ones."""

PLAIN_EVERY = 32
"""At least every so many steps is a plain one, so that costs are compared with this machine now."""

OUTDATED = 256
"""Steps after which a cost that was not measured again is forgotten."""

LEARNING_RATE = 1 / 16
"""Weight of the latest token in the running acceptance."""

PRIOR = (0.0, 0.0, 0.45, 0.7, 0.9, 0.96)
"""Acceptance to begin with, by the bit length of the number of matched tokens: 2, 4, 8, 16 and more."""


def verify(draft: SequenceOf[int], draws: Iterator[int], stop_tokens: Container[int]) -> list[int]:
    """The accepted tokens of a draft and the one after them, which is a stop token or what the draft did not foretell.

    draws: draws tokens, each from the logits behind the draft tokens before it; only those that are wanted are drawn.
    """
    drawn = [next(draws)]
    for drafted in draft:
        if drawn[-1] != drafted or drafted in stop_tokens:
            break
        drawn.append(next(draws))
    return drawn


class StepCosts:
    """Time of steps of one sequence by their number of tokens, as medians of the latest: graphs are built in some."""

    def __init__(self) -> None:
        self._plain: deque[float] = deque(maxlen=5)
        self._relative = {length: deque[float](maxlen=5) for length in LENGTHS}
        self._measured_at = dict.fromkeys(self._relative, 0)
        self._n_steps = 0
        self.plain_seconds = 0.0
        """Of a step that computes one token; 0 if unknown."""

    def add(self, n_draft: int, seconds: float) -> float:
        """Take in a step; returns what such steps take of late, in plain steps: one alone may have been disturbed."""
        self._n_steps += 1
        if not n_draft:
            self._plain.append(seconds)
            self.plain_seconds = statistics.median_low(self._plain)
            return 1.0
        samples = self._relative[n_draft]
        samples.append(seconds / self.plain_seconds)
        self._measured_at[n_draft] = self._n_steps
        return statistics.median_low(samples)

    def relative(self) -> Iterator[tuple[int, float]]:
        """Lengths of drafts and the expected time of their steps, in plain steps; the first guess is the last one."""
        per_token = FIRST_GUESS / NEXT_GUESS
        for length, samples in self._relative.items():
            if not samples or self._n_steps - self._measured_at[length] > OUTDATED:
                samples.clear()
                yield length, 1 + NEXT_GUESS * per_token * length
                return
            cost = statistics.median_low(samples)
            per_token = (cost - 1) / length
            yield length, cost


class Acceptance:
    """How often the text went on as the lookup said, by how many tokens had matched before: the more, the surer."""

    def __init__(self) -> None:
        self._rates = list(PRIOR)

    def record(self, n_matched: int, accepted: bool) -> None:
        """Take in one token that was foretold after `n_matched` matching ones."""
        kind = self._kind(n_matched)
        self._rates[kind] += LEARNING_RATE * (accepted - self._rates[kind])

    def expected(self, n_matched: int, n_draft: int) -> float:
        """Tokens that a step with `n_draft` draft tokens yields in the mean: those accepted, and the one after them."""
        total = survival = 1.0
        for i in range(n_draft):
            survival *= self._rates[self._kind(n_matched + i)]
            total += survival
        return total

    def _kind(self, n_matched: int) -> int:
        return min(n_matched.bit_length(), len(PRIOR) - 1)


class Drafter:
    """What one sequence needs to speculate."""

    def __init__(self, token_ids: SequenceOf[int]) -> None:
        self.lookup = PromptLookup(token_ids)
        self.acceptance = Acceptance()


class Speculation:
    """Chooses the draft of each step of a sequence that decodes alone, and learns from its result."""

    def __init__(self) -> None:
        self._costs = StepCosts()
        self._credit = CREDIT
        self._n_since_plain = 0

    def draft(self, sequence: Sequence, limit: int) -> tuple[int, ...]:
        """Draft tokens to verify in the next step, at most `limit`; () where a plain step is better."""
        if sequence.drafter is None:
            sequence.drafter = Drafter(sequence.token_ids)
        lookup, acceptance = sequence.drafter.lookup, sequence.drafter.acceptance
        lookup.update()
        if not lookup.n_matched or not self._costs.plain_seconds or self._n_since_plain >= PLAIN_EVERY:
            return ()
        best, best_speed = 0, WORTHWHILE
        for length, cost in self._costs.relative():
            if length > limit or cost - 1 > self._credit:
                break
            speed = acceptance.expected(lookup.n_matched, length) / cost
            if speed > best_speed:
                best, best_speed = length, speed
        return lookup.draft(best)

    def observe(self, sequence: Sequence, draft: SequenceOf[int], drawn: SequenceOf[int], seconds: float) -> None:
        """Take in the step that followed `draft`, before its tokens are added to the sequence.

        draft: what was verified, maybe nothing. drawn: the accepted tokens, and the one after them.
        seconds: duration of the step.
        """
        cost = self._costs.add(len(draft), seconds)
        gain = len(drawn) - cost if draft else REFILL
        self._credit = max(-CREDIT, min(CREDIT, self._credit + gain))
        self._n_since_plain = self._n_since_plain + 1 if draft else 0
        assert sequence.drafter is not None
        lookup = sequence.drafter.lookup
        for i, (foretold, token) in enumerate(zip(draft or lookup.draft(1), drawn, strict=False)):
            sequence.drafter.acceptance.record(lookup.n_matched + i, foretold == token)
