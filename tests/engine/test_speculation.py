"""The gate on a machine made of numbers: each step takes the time that a table gives, and the text is known."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from engine.sequence import Request, Sequence
from engine.speculation import LENGTHS, OUTDATED, Acceptance, Speculation, StepCosts, verify

Cost = Callable[[int], float]
"""Seconds of a step with so many draft tokens."""


def laptop(n_draft: int) -> float:
    """Measured with a model of 135 million parameters on two cores."""
    return {0: 0.01, 3: 0.0274, 7: 0.0444, 11: 0.0647}[n_draft]


def gpu(n_draft: int) -> float:
    return 0.01 * (1 + 0.02 * n_draft)


def serial(n_draft: int) -> float:
    """A machine that gains nothing from computing tokens together."""
    return 0.01 * (1 + n_draft)


class Outcome(NamedTuple):
    """Of an answer. seconds, plain_seconds: with speculation, and one by one. lengths: of the drafts."""

    seconds: float
    plain_seconds: float
    lengths: list[int]

    @property
    def speedup(self) -> float:
        return self.plain_seconds / self.seconds


class Decoding:
    """Decodes a sequence with a gate. `next_token` says how a text goes on, given it and the draft's next token."""

    def __init__(self, prompt: list[int], cost: Cost, gate: Speculation | None = None) -> None:
        self.gate = gate or Speculation()
        self.sequence = Sequence(1, 1, 0, Request(tuple(prompt)), list(prompt), ())
        self.cost = cost

    def run(self, n_tokens: int, next_token: Callable[[list[int], int | None], int], limit: int = 100) -> Outcome:
        end = len(self.sequence.token_ids) + n_tokens
        seconds = plain_seconds = 0.0
        lengths = []
        while len(self.sequence.token_ids) < end:
            text = self.sequence.token_ids
            draft = self.gate.draft(self.sequence, min(limit, end - len(text) - 1))
            assert len(draft) in (0, *LENGTHS)
            assert len(draft) <= limit
            drawn: list[int] = []
            for foretold in (*draft, None):
                drawn.append(next_token([*text, *drawn], foretold))
                if drawn[-1] != foretold:
                    break
            taken = self.cost(len(draft))
            self.gate.observe(self.sequence, draft, drawn, taken)
            text.extend(drawn)
            seconds += taken
            plain_seconds += len(drawn) * self.cost(0)
            lengths.append(len(draft))
        return Outcome(seconds, plain_seconds, lengths)


def noise(seed: int, n_different: int) -> Callable[[list[int], int | None], int]:
    chance = random.Random(seed)
    return lambda _text, _foretold: chance.randrange(n_different)


PASSAGE = [random.Random(1).randrange(3000) for _ in range(400)]


def quoting(text: list[int], _foretold: int | None) -> int:
    """Repeats the passage over and over."""
    return PASSAGE[len(text) % len(PASSAGE)]


@pytest.mark.parametrize("cost", [laptop, serial])
@pytest.mark.parametrize("seed", range(3))
def test_a_story_where_drafts_fail_costs_nothing(seed: int, cost: Cost) -> None:
    """Pairs of tokens occur again all the time, and every third draft token is right: too few."""
    outcome = Decoding([0], cost).run(1000, noise(seed, 3))
    assert outcome.speedup >= 0.98


@pytest.mark.parametrize(("cost", "least"), [(laptop, 1.7), (gpu, 6.0), (serial, 0.98)])
def test_a_quotation_is_as_fast_as_the_machine_allows(cost: Cost, least: float) -> None:
    assert Decoding(PASSAGE, cost).run(400, quoting).speedup >= least


def test_where_drafts_cost_next_to_nothing_poor_ones_are_taken() -> None:
    decoding = Decoding(PASSAGE, gpu)
    decoding.run(400, quoting)  # learns what drafts cost
    assert decoding.run(1000, noise(0, 3)).speedup > 1.2


def adversary(text: list[int], foretold: int | None) -> int:
    """Repeats the passage until somebody relies on it; drafts look perfect and always fail."""
    following = PASSAGE[len(text) % len(PASSAGE)]
    return following if foretold is None else 10_000 + len(text)


@pytest.mark.parametrize("cost", [laptop, gpu, serial])
@pytest.mark.parametrize("n_tokens", [100, 800, 5000])
def test_the_worst_text_costs_two_per_cent(n_tokens: int, cost: Cost) -> None:
    outcome = Decoding(PASSAGE, cost).run(n_tokens, adversary)
    assert any(outcome.lengths), "the adversary has no victim"
    assert outcome.seconds - outcome.plain_seconds <= 0.02 * max(n_tokens, 800) * cost(0)


def test_the_credit_is_that_of_the_engine_not_of_the_answer() -> None:
    gate = Speculation()
    outcomes = [Decoding(PASSAGE, laptop, gate).run(40, adversary) for _ in range(50)]
    lost = sum(outcome.seconds - outcome.plain_seconds for outcome in outcomes)
    assert 0 < lost <= 0.02 * 50 * 40 * laptop(0)


def test_gains_pay_for_losses() -> None:
    """After a fiasco, a text that is quoted is sped up as soon as one draft is affordable, and then all along."""
    gate = Speculation()
    Decoding(PASSAGE, laptop, gate).run(300, adversary)
    outcome = Decoding(PASSAGE, laptop, gate).run(2000, quoting)
    assert outcome.speedup > 1.5


def test_one_slow_step_does_not_end_speculation() -> None:
    decoding = Decoding(PASSAGE, laptop)
    decoding.run(200, quoting)
    busy = iter([5.0])
    decoding.cost = lambda n_draft: next(busy, 0.0) + laptop(n_draft) if n_draft else laptop(0)
    decoding.run(50, quoting)
    assert decoding.run(2000, quoting).speedup > 1.5


def test_a_machine_that_becomes_slower_in_all_is_no_reason_to_stop() -> None:
    """At first only the drafts seem to be slower; the plain steps that follow correct that."""
    decoding = Decoding(PASSAGE, laptop)
    decoding.run(400, quoting)
    decoding.cost = lambda n_draft: 3 * laptop(n_draft)
    assert decoding.run(2000, quoting).speedup > 1.5


def test_a_machine_on_which_drafts_become_dear_stops() -> None:
    decoding = Decoding(PASSAGE, laptop)
    decoding.run(400, quoting)
    decoding.cost = serial
    decoding.run(200, quoting)
    outcome = decoding.run(1000, quoting)
    assert outcome.speedup > 0.99
    assert sum(length > 0 for length in outcome.lengths) < 0.03 * len(outcome.lengths)


def test_drafts_stop_when_single_steps_become_cheap() -> None:
    """A plain step now and then shows it, though drafts go on to be right."""
    decoding = Decoding(PASSAGE, laptop)
    decoding.run(400, quoting)
    decoding.cost = lambda n_draft: laptop(n_draft) if n_draft else laptop(0) / 3
    decoding.run(4000, quoting)
    assert decoding.run(1000, quoting).speedup > 0.98


def test_acceptance_is_learned_without_verifying() -> None:
    """Every place that is found is right for two tokens and then wrong: more than was thought, and worth this price."""
    places = [[10 * i + k for k in range(4)] for i in range(200)]
    prompt = [token for place in places for token in place]
    answer = [token for i, place in enumerate(places) for token in (*place, 5000 + i)]
    decoding = Decoding(prompt, lambda n_draft: 0.01 if not n_draft else 0.022 + 0.005 * (n_draft - 3))
    outcome = decoding.run(900, lambda text, _foretold: answer[len(text) - len(prompt)])
    assert sum(outcome.lengths[-100:]) > 50


def test_limits_are_kept() -> None:
    for limit in (0, 2, 3, 6, 7, 10):
        lengths = Decoding(PASSAGE, gpu).run(200, quoting, limit).lengths
        assert max(lengths) == max((length for length in LENGTHS if length <= limit), default=0)


class TestStepCosts:
    def test_a_length_is_guessed_from_the_shorter_one_and_only_one_at_a_time(self) -> None:
        costs = StepCosts()
        costs.add(0, 1.0)
        [(length, guess)] = costs.relative()
        assert (length, guess) == (3, 1.75)
        costs.add(3, 4.0)
        assert list(costs.relative()) == [(3, 4.0), (7, 1 + 0.75 * 7)]
        costs.add(7, 5.0)
        assert [length for length, _ in costs.relative()] == [3, 7, 11]

    def test_one_slow_measurement_among_several_does_not_count(self) -> None:
        costs = StepCosts()
        for seconds in (1.0, 1.0, 9.0):
            costs.add(0, seconds)
        for seconds in (2.0, 2.0, 3.9):
            costs.add(3, seconds)
        assert costs.plain_seconds == 1.0
        assert next(iter(costs.relative())) == (3, 2.0)

    def test_what_was_not_measured_for_long_is_forgotten(self) -> None:
        costs = StepCosts()
        costs.add(0, 1.0)
        costs.add(3, 4.0)
        for _ in range(OUTDATED):
            assert next(iter(costs.relative())) == (3, 4.0)
            costs.add(0, 1.0)
        costs.add(0, 1.0)
        assert next(iter(costs.relative())) == (3, 1.75)

    def test_what_a_step_is_charged_is_typical(self) -> None:
        costs = StepCosts()
        costs.add(0, 1.0)
        assert [costs.add(3, seconds) for seconds in (3.0, 2.0, 90.0, 4.0)] == [3.0, 2.0, 3.0, 3.0]


class TestAcceptance:
    def test_expected_tokens(self) -> None:
        """Certain, hopeless, and half of the time: 1 + 1/2 + 1/4 + 1/8."""
        for share, expected in ((1, 4.0), (0, 1.0), (2, 1.875)):
            acceptance = Acceptance()
            for i in range(1000):
                acceptance.record(2, share == 1 or (share == 2 and i % 2 == 0))
                acceptance.record(5, share == 1 or (share == 2 and i % 2 == 0))
            assert acceptance.expected(4, 3) == pytest.approx(expected, rel=0.05)

    def test_long_matches_say_nothing_about_short_ones(self) -> None:
        acceptance = Acceptance()
        before = acceptance.expected(2, 1)
        for _ in range(100):
            acceptance.record(40, False)
        assert acceptance.expected(2, 1) == before
        assert acceptance.expected(17, 1) == pytest.approx(1, abs=0.01)


class TestVerify:
    @pytest.mark.parametrize(
        ("draft", "drawn"),
        [((), [5]), ((5, 6), [5, 6, 7]), ((5, 9), [5, 6]), ((9, 6), [5]), ((5, 6, 7), [5, 6, 7, 8])],
    )
    def test_what_is_drawn_counts(self, draft: tuple[int, ...], drawn: list[int]) -> None:
        assert verify(draft, iter([5, 6, 7, 8]), frozenset()) == drawn

    def test_nothing_is_drawn_after_a_stop_token(self) -> None:
        draws = iter([5, 6, 7])
        assert verify((5, 6), draws, {5}) == [5]
        assert next(draws) == 6
