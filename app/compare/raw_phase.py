"""Raw speed: pp512 and tg64 at several depths, and batches, in rounds of A B, B A, A B …

The known tokens of a test come first and are not timed. All depths share one row of random tokens, so that the deeper
tests only add to it; what is timed is always new, so that no cache holds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial

import numpy as np

from app.compare.crew import Crew, Entrant, Stage, Unmeasurable, slower_variants
from app.compare.events import Measured
from app.compare.lanes import Answer, BatchTest, BatchVariant, V, Variant
from app.compare.record import RawSample
from app.compare.scenarios import GREEDY, RawTest
from engine.messages import TextRequest, TokenPrompt

_TRIAL = 2
"""Rounds after which only the faster variant of a lane goes on."""

_SERVER_SLACK = 64
"""Tokens that a server may compute besides the new ones: those of a block that is not full, and what it adds itself."""

_WARM_UP = RawTest(64, 0, decodes=False), RawTest(8, 0, decodes=True)


def rounds(repeat: int) -> int:
    """Of a test, in a comparison that plays the session `repeat` times: a test takes seconds, a session many."""
    return 2 * repeat + 1


class RawPhase:
    """Runs raw tests with a crew; every lane gets the same random tokens."""

    def __init__(self, stage: Stage, vocabulary: int, deepest: int) -> None:
        """vocabulary: number of token ids. deepest: the greatest depth of all tests."""
        self._stage = stage
        self._vocabulary = vocabulary
        self._known = self._random(deepest, seed=0)

    def warm_up(self, crew: Crew[Variant]) -> None:
        """Let every engine touch its memory once; nothing of it counts. Raises Stop or Skip."""
        for entrant in crew.fit:
            for test in _WARM_UP:
                if entrant in crew.fit:
                    crew.attempt(entrant, "warm-up", partial(self._answer, test, entrant, -1))

    def run(self, test: RawTest, crew: Crew[Variant]) -> None:
        """All rounds of a test. Raises NobodyLeft, Stop or Skip."""
        if test.depth:
            for entrant in crew.in_turn(0):
                crew.attempt(entrant, test.name, partial(self._ask, entrant, self._known[: test.depth], 1))
        _take_rounds(self._stage, crew, test.name, partial(self._measure, test))

    def _measure(self, test: RawTest, entrant: Entrant[Variant], number: int) -> RawSample:
        answer = self._answer(test, entrant, number)
        _check(test, answer)
        engine_s = answer.engine and answer.engine.decode_s if test.decodes else answer.prefill_s
        user_s = answer.user.decode_s if test.decodes else answer.user.end_s
        return RawSample(
            test=test.name,
            lane=entrant.lane,
            variant=entrant.variant.name,
            round=number,
            n_tokens=test.n_tokens if test.decodes else answer.computed_tokens or test.n_tokens,
            engine_s=user_s if engine_s is None else engine_s,
            user_s=user_s,
        )

    def _answer(self, test: RawTest, entrant: Entrant[Variant], number: int) -> Answer:
        known = self._known[: test.depth]
        if known:  # what the last round added to it is dropped, with whatever that costs
            self._ask(entrant, known, 1)
        fresh = self._random(_n_fresh(test), seed=2 * (1 + number + 1000 * test.depth) + test.decodes)
        return self._ask(entrant, known + fresh, test.n_tokens + 1 if test.decodes else 1)

    def _ask(self, entrant: Entrant[Variant], tokens: tuple[int, ...], n: int) -> Answer:
        request = TextRequest(TokenPrompt(tokens), GREEDY, max_tokens=n)
        return entrant.variant.ask(request, lambda _: None, self._stage.control.wanted)

    def _random(self, n: int, seed: int) -> tuple[int, ...]:
        ids = np.random.default_rng(seed).integers(0, self._vocabulary, n)
        return tuple(map(int, ids))


def _n_fresh(test: RawTest) -> int:
    """Tokens of its prompt that nobody has seen before."""
    return 1 if test.decodes else test.n_tokens


def _check(test: RawTest, answer: Answer) -> None:
    """Raise Unmeasurable if something else was done than meant: our engines tell exactly, a server counts its way."""
    allowed = 0 if answer.token_ids else _SERVER_SLACK
    computed, n_fresh = answer.computed_tokens, _n_fresh(test)
    if computed is not None and not n_fresh <= computed <= n_fresh + allowed:
        raise Unmeasurable(
            f"{computed:,} tokens were computed where {n_fresh:,} were new: this engine does not find the known ones "
            "again, so that the test would measure something else."
        )
    if test.decodes and answer.generated_tokens != test.n_tokens + 1:
        raise Unmeasurable(
            f"the answer ended after {answer.generated_tokens:,} of {test.n_tokens + 1:,} tokens, and this server "
            "cannot be told to go on."
        )


class BatchPhase:
    """Runs batch tests with a crew."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def warm_up(self, crew: Crew[BatchVariant]) -> None:
        """See RawPhase."""
        test = BatchTest(1, 64, 8)
        for entrant in crew.fit:
            crew.attempt(entrant, "warm-up", partial(self._measure, test, entrant, -1))

    def run(self, test: BatchTest, crew: Crew[BatchVariant]) -> None:
        """See RawPhase."""
        _take_rounds(self._stage, crew, test.name, partial(self._measure, test))

    def _measure(self, test: BatchTest, entrant: Entrant[BatchVariant], number: int) -> RawSample:
        seconds = entrant.variant.decode(test, self._stage.control.wanted)
        n_tokens = test.n_sequences * test.n_tokens
        return RawSample(test.name, entrant.lane, entrant.variant.name, number, n_tokens, seconds)


def _take_rounds(stage: Stage, crew: Crew[V], test: str, measure: Callable[[Entrant[V], int], RawSample]) -> None:
    """Let everyone measure once a round; who cannot, or was slower than its lane's other variant in the first rounds,
    sits the rest of them out. Raises NobodyLeft, Stop or Skip.
    """
    sitting: set[Entrant[V]] = set()
    seconds: defaultdict[Entrant[V], float] = defaultdict(float)
    number = 0
    while number < (n_rounds := rounds(stage.control.repeat)):
        for entrant in crew.in_turn(number):
            if entrant in sitting:
                continue
            stage.control.check()
            stage.announce(crew.phase, test, entrant, number)
            sample = crew.attempt(entrant, test, partial(measure, entrant, number))
            if sample is None:
                sitting.add(entrant)
                seconds.pop(entrant, None)
            else:
                seconds[entrant] += sample.engine_s
                stage.record.raw.append(sample)
                stage.on_event(Measured(sample))
        number += 1
        if number == _TRIAL:
            sitting |= slower_variants(seconds)
        stage.advance(number / n_rounds)
