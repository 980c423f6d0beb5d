"""Figures from made-up timings whose true ratio is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.compare.statistics import Pair, Ratio, Verdict, paired_ratio, spread, total_ratio


def test_a_spread() -> None:
    assert spread([3.0, 1.0, 2.0, 10.0]) == (2.5, 1.0, 10.0, 4)
    assert spread([0.25]) == (0.25, 0.25, 0.25, 1)
    with pytest.raises(ValueError, match="no measurements"):
        spread([])


def test_the_median_ratio_ignores_one_wild_pair() -> None:
    pairs = [Pair(2.0, 1.0)] * 6 + [Pair(1.0, 50.0)]
    ratio = paired_ratio(pairs)
    assert ratio.value == pytest.approx(2)
    assert ratio.n == 7


def test_ratios_are_taken_within_pairs() -> None:
    """Both lanes become three times as slow in the middle; neighbours are slow alike."""
    states = (1, 1, 1, 3, 3, 3)
    ratio = paired_ratio([Pair(1.5 * state, 1.0 * state) for state in states])
    assert (ratio.value, ratio.low, ratio.high) == (pytest.approx(1.5), pytest.approx(1.5), pytest.approx(1.5))


def test_a_ratio_turned_round_is_one_over_it() -> None:
    pairs = [Pair(1.0 + i / 10, 2.0 - i / 20) for i in range(7)]
    ratio, turned = paired_ratio(pairs), paired_ratio([Pair(other, base) for base, other in pairs])
    assert turned.value == pytest.approx(1 / ratio.value)
    assert ratio.low is not None
    assert turned.high == pytest.approx(1 / ratio.low, rel=0.01)


def test_the_same_timings_give_the_same_interval() -> None:
    pairs = [Pair(1.0 + i % 3, 1.0 + i % 2) for i in range(8)]
    assert paired_ratio(pairs) == paired_ratio(pairs)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 1.2, Verdict.FASTER),
        (0.8, 0.99, Verdict.SLOWER),
        (0.99, 1.01, Verdict.NO_DIFFERENCE),
        (1.0, 1.2, Verdict.NO_DIFFERENCE),
        (None, None, Verdict.UNKNOWN),
    ],
)
def test_verdicts(low: float | None, high: float | None, verdict: Verdict) -> None:
    assert Ratio(1.0, low, high, 9).verdict is verdict


def test_too_few_pairs_have_no_interval() -> None:
    ratio = paired_ratio([Pair(2.0, 1.0)] * 4)
    assert ratio == Ratio(pytest.approx(2.0), None, None, 4)
    assert paired_ratio([Pair(2.0, 1.0)] * 5).low is not None
    with pytest.raises(ValueError, match="no pairs"):
        paired_ratio([])


def test_one_session_has_no_interval() -> None:
    """However many steps it has: they differ in work, and say nothing about chance."""
    assert total_ratio([[Pair(2.0, 1.0)], [Pair(4.0, 3.0)]] * 10).low is None
    with pytest.raises(ValueError, match="no pairs"):
        total_ratio([])


def test_totals_weigh_steps_by_their_time() -> None:
    ratio = total_ratio([[Pair(9.0, 6.0), Pair(9.0, 6.0)], [Pair(1.0, 2.0), Pair(1.0, 2.0)], [Pair(1, 1), Pair(1, 1)]])
    assert ratio.value == pytest.approx(11 / 9)
    assert (ratio.low, ratio.high) == (pytest.approx(11 / 9), pytest.approx(11 / 9))


def test_more_work_in_the_same_time_counts() -> None:
    assert total_ratio([[Pair(2.0, 2.0)]], work=1.25).value == pytest.approx(1.25)


@pytest.mark.parametrize("noise", ["normal", "heavy tails"])
@pytest.mark.parametrize("n", [5, 6, 9])
def test_nineteen_of_twenty_intervals_of_pairs_hold_the_true_ratio(n: int, noise: str) -> None:
    """In 250 trials chance moves what is found by 1.4 % (one standard deviation)."""
    random = np.random.default_rng(n)
    true, trials = 1.3, 250
    held = 0
    for _ in range(trials):
        errors = random.normal(0, 0.05, n) if noise == "normal" else 0.03 * random.standard_t(3, n)
        ratio = paired_ratio([Pair(true * math.exp(error), 1.0) for error in errors])
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= true <= ratio.high
    assert 0.91 <= held / trials <= 0.99


@pytest.mark.parametrize(("n_steps", "n_repeats"), [(13, 2), (13, 3), (5, 4)])
def test_nine_of_ten_intervals_of_sessions_hold_the_true_ratio(n_steps: int, n_repeats: int) -> None:
    """Some steps take twenty times as long as others, and the lanes differ in each of them."""
    random = np.random.default_rng(n_steps)
    trials, held = 150, 0
    for _ in range(trials):
        means = random.exponential(1, (n_steps, 1, 2)) + 0.1
        times = means * np.exp(random.normal(0, 0.05, (n_steps, n_repeats, 2)))
        ratio = total_ratio([[Pair(*pair) for pair in step] for step in times.tolist()])
        assert ratio.low is not None
        assert ratio.high is not None
        true = means[..., 0].sum() / means[..., 1].sum()
        held += bool(ratio.low <= true <= ratio.high)
    assert 0.89 <= held / trials <= 0.995


def test_equal_lanes_are_called_equal() -> None:
    """And one that is a tenth faster is not."""
    random = np.random.default_rng(1)
    noise = np.exp(random.normal(0, 0.02, (9, 2))).tolist()
    assert paired_ratio([Pair(base, other) for base, other in noise]).verdict is Verdict.NO_DIFFERENCE
    assert paired_ratio([Pair(base * 1.1, other) for base, other in noise]).verdict is Verdict.FASTER
    assert paired_ratio([Pair(base, other * 1.1) for base, other in noise]).verdict is Verdict.SLOWER
