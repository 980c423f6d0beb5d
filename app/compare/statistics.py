"""From timings to figures that can be believed: medians with their spread, and ratios with an interval.

Two lanes that take turns see the same state of the machine, so a ratio is taken within each pair of neighbouring
measurements. Intervals are made by the bootstrap: what the figure would have been, had other pairs of those measured
come up. That is too narrow for few pairs, and is widened as much as Student's t is wider than the normal distribution
(Hesterberg, "What Teachers Should Know about the Bootstrap", 2014, section 4.3.1).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
FEWEST_PAIRS = 5
"""Of fewer, not even the least and the greatest ratio hold the true one between them that often: 88 % of four."""

_RESAMPLES = 2000
_SEED = 20
"""The same timings always give the same interval."""

_Floats = npt.NDArray[np.float64]


class Spread(NamedTuple):
    """The median of `n` measurements, the least and the greatest of them."""

    median: float
    least: float
    most: float
    n: int


class Pair(NamedTuple):
    """Two measurements of the same work next to each other in time, such as seconds: of the lane that others are
    compared with, and of another one.
    """

    base: float
    other: float


class Verdict(enum.StrEnum):
    """What a ratio says."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNKNOWN = "too few runs to say"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as the base the other lane is, from `n` pairs. low, high: the interval, None of too few
    pairs.
    """

    value: float
    low: float | None
    high: float | None
    n: int

    @property
    def verdict(self) -> Verdict:
        """No difference is when the interval holds 1."""
        if self.low is None or self.high is None:
            return Verdict.UNKNOWN
        if self.low > 1:
            return Verdict.FASTER
        return Verdict.SLOWER if self.high < 1 else Verdict.NO_DIFFERENCE


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError without values."""
    if not values:
        raise ValueError("no measurements")
    return Spread(float(np.median(values)), min(values), max(values), len(values))


def paired_ratio(pairs: Sequence[Pair]) -> Ratio:
    """The median ratio of pairs of the same work. Raises ValueError without pairs."""
    if not pairs:
        raise ValueError("no pairs")
    logs = np.log([pair.base / pair.other for pair in pairs])
    n = len(logs)
    value = math.exp(np.median(logs))
    if n < FEWEST_PAIRS:
        return Ratio(value, None, None, n)
    drawn = np.random.default_rng(_SEED).integers(0, n, (_RESAMPLES, n))
    medians = np.median(logs[drawn], axis=1)
    beyond = NormalDist().cdf(-math.sqrt(n / (n - 1)) * _student(n - 1))
    low, high = np.quantile(medians, (beyond, 1 - beyond))
    return Ratio(value, math.exp(low), math.exp(high), n)


def total_ratio(steps: Sequence[Sequence[Pair]], work: float = 1.0) -> Ratio:
    """The ratio of the sums over steps of different work, each measured as often as the others.

    work: of the other lane, relative to the base's, as where its answers are longer. The bootstrap draws among the
    pairs of the same step, so that steps may differ as much as they like. Raises ValueError without pairs.
    """
    if not steps or not steps[0]:
        raise ValueError("no pairs")
    times = np.array(steps)  # [steps, repeats, 2]
    n_steps, n_repeats, _ = times.shape
    n = n_steps * n_repeats
    value = _log_ratio(times.mean(axis=1))
    variances = times.mean(axis=(1, 2)) ** 2  # in proportion, where noise is a part of the time
    freedom = (n_repeats - 1) * variances.sum() ** 2 / (variances**2).sum()  # Welch and Satterthwaite's
    if n < FEWEST_PAIRS or n_repeats == 1:
        return Ratio(work * math.exp(value), None, None, n)
    drawn = np.random.default_rng(_SEED).integers(0, n_repeats, (_RESAMPLES, n_steps, n_repeats))
    resampled = times[np.arange(n_steps)[:, np.newaxis], drawn].mean(axis=2)
    widening = math.sqrt(n_repeats / (n_repeats - 1)) * _student(freedom) / -_normal()
    beyond = (1 - CONFIDENCE) / 2
    low, high = value + widening * np.quantile(_log_ratio(resampled) - value, (beyond, 1 - beyond))
    return Ratio(work * math.exp(value), work * math.exp(low), work * math.exp(high), n)


def _log_ratio(times: _Floats) -> _Floats:
    """Of the sums over steps; times: [..., steps, 2]."""
    sums = times.sum(axis=-2)
    return np.asarray(np.log(sums[..., 0] / sums[..., 1]))


def _normal() -> float:
    """The normal distribution's quantile at the lower end of the interval."""
    return NormalDist().inv_cdf((1 - CONFIDENCE) / 2)


def _student(freedom: float) -> float:
    """Student's quantile at the upper end of the interval: Abramowitz and Stegun, 26.7.5."""
    z = -_normal()
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
