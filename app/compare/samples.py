"""Samples sorted by lane and variant, paired and counted: what raw tests, steps and sessions have in common."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.compare.record import RawSample, StepSample
from app.compare.statistics import Pair, Spread

S = TypeVar("S", RawSample, StepSample)


@dataclass(frozen=True)
class VariantSpeed:
    """Tokens per second."""

    variant: str
    tokens_per_s: Spread


def total(numbers: Iterable[int | None]) -> int | None:
    """None where one of them is not told."""
    known = list(numbers)
    return None if None in known else sum(number for number in known if number is not None)


def by_variant(samples: Iterable[S], lane: str, seconds: Callable[[S], float]) -> dict[str, list[S]]:
    """A lane's samples by variant: the one that was measured most often first, then the fastest.

    The runner lets a lane's slower variants rest once it knows them. seconds: what a sample took.
    """
    found: defaultdict[str, list[S]] = defaultdict(list)
    for sample in samples:
        if sample.lane == lane:
            found[sample.variant].append(sample)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), statistics.median(map(seconds, item[1])))))


def fastest(variants: Mapping[str, list[S]]) -> list[S]:
    """Samples of the first variant, none where there is none."""
    return next(iter(variants.values()), [])


def pairs(
    base: Sequence[S], others: Sequence[S], number: Callable[[S], int], seconds: Callable[[S], float]
) -> list[Pair]:
    """The samples of both that have the same number."""
    base_seconds = {number(sample): seconds(sample) for sample in base}
    return [Pair(base_seconds[number(sample)], seconds(sample)) for sample in others if number(sample) in base_seconds]


def in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of its first appearance."""
    return list(dict.fromkeys(names))
