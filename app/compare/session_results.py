"""What a whole session comes to in each lane: the single user's tokens per second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.compare.lanes import LaneMemory
from app.compare.record import Record, StepSample
from app.compare.samples import VariantSpeed, by_variant, in_order, total
from app.compare.statistics import Pair, Ratio, Spread, spread, total_ratio


@dataclass(frozen=True)
class SessionFigure:
    """A lane over the whole session: generated tokens divided by the time in which the user waited for answers.

    variants: by that figure, the one that the others are of first. engine_tokens_per_s: the same tokens, by the
    engine's own time. first_s: the median over all steps. n_steps: how many the figures are of. The numbers of tokens
    are those of the first repeat. memory: when the cache held the most. ratio: None of the first lane.
    """

    lane: str
    n_steps: int
    variants: tuple[VariantSpeed, ...]
    engine_tokens_per_s: Spread | None
    first_s: Spread
    generated_tokens: int
    guessed_tokens: int
    reused_tokens: int | None
    computed_tokens: int | None
    memory: LaneMemory | None
    ratio: Ratio | None

    @property
    def tokens_per_s(self) -> Spread:
        """Of the faster variant."""
        return self.variants[0].tokens_per_s


def session_figures(record: Record) -> tuple[SessionFigure, ...]:
    """One for each lane that has not failed, over what all of them have played: sessions, or one's beginning."""
    failed = {(error.lane, error.variant) for error in record.errors if error.phase == "session"}
    played = [sample for sample in record.session if (sample.lane, sample.variant) not in failed]
    lanes = [_variants(played, lane) for lane in record.lanes]
    first = [variants[0] for variants in lanes if variants]
    steps, repeats = _common(first) if first else ([], [])
    if not steps:
        return ()
    kept = [[sample for sample in samples if sample.step in steps and sample.repeat in repeats] for samples in first]
    base = kept[0] if lanes[0] else None
    return tuple(
        _figure(samples, _speeds(variants, steps), base, steps, repeats)
        for samples, variants in zip(kept, filter(None, lanes), strict=True)
    )


def _variants(samples: Sequence[StepSample], lane: str) -> list[list[StepSample]]:
    """Those of a lane: the one that played most first, then the one with the most tokens per second."""
    found = by_variant(samples, lane, lambda sample: sample.user.end_s)
    return sorted(found.values(), key=lambda samples: (-len(samples), -_tokens_per_s(samples)))


def _common(variants: Sequence[Sequence[StepSample]]) -> tuple[list[str], list[int]]:
    """Steps and repeats that all of them have."""
    done = set.intersection(*({(sample.step, sample.repeat) for sample in samples} for samples in variants))
    steps = in_order(sample.step for sample in variants[0])
    repeats = sorted({repeat for _, repeat in done})
    whole = [repeat for repeat in repeats if all((step, repeat) in done for step in steps)]
    return (steps, whole) if whole else ([step for step in steps if (step, 0) in done], [0])


def _figure(
    samples: Sequence[StepSample],
    variants: tuple[VariantSpeed, ...],
    base: Sequence[StepSample] | None,
    steps: Sequence[str],
    repeats: Sequence[int],
) -> SessionFigure:
    first = [sample for sample in samples if sample.repeat == repeats[0]]
    memories = [sample.memory for sample in samples if sample.memory is not None]
    return SessionFigure(
        lane=samples[0].lane,
        n_steps=len(steps),
        variants=variants,
        engine_tokens_per_s=_engine_speed(samples, repeats),
        first_s=spread([sample.user.first_s for sample in samples]),
        generated_tokens=sum(sample.generated_tokens for sample in first),
        guessed_tokens=sum(sample.guessed_tokens for sample in first),
        reused_tokens=total(sample.reused_tokens for sample in first),
        computed_tokens=total(sample.computed_tokens for sample in first),
        memory=max(memories, key=lambda memory: memory.kv_used or 0) if memories else None,
        ratio=None if base is None or base is samples else _ratio(samples, base, steps, repeats),
    )


def _ratio(
    samples: Sequence[StepSample], base: Sequence[StepSample], steps: Sequence[str], repeats: Sequence[int]
) -> Ratio:
    ours, theirs = ({(each.step, each.repeat): each.user.end_s for each in played} for played in (samples, base))
    pairs = [[Pair(theirs[step, repeat], ours[step, repeat]) for repeat in repeats] for step in steps]
    return total_ratio(pairs, sum(_tokens(samples)) / sum(_tokens(base)))


def _speeds(variants: Sequence[Sequence[StepSample]], steps: Sequence[str]) -> tuple[VariantSpeed, ...]:
    """Of those that have played all `steps` at least once."""
    speeds = []
    for samples in variants:
        played = [sample for sample in samples if sample.step in steps]
        repeats = ([sample for sample in played if sample.repeat == repeat] for repeat in _repeats(played))
        figures = [_tokens_per_s(each) for each in repeats if len(each) == len(steps)]
        if figures:
            speeds.append(VariantSpeed(samples[0].variant, spread(figures)))
    return tuple(speeds)


def _engine_speed(samples: Sequence[StepSample], repeats: Sequence[int]) -> Spread | None:
    """None where an engine does not tell its times."""
    speeds = []
    for repeat in repeats:
        played = [sample for sample in samples if sample.repeat == repeat]
        seconds = [sample.engine.end_s for sample in played if sample.engine is not None]
        if len(seconds) < len(played):
            return None
        speeds.append(sum(_tokens(played)) / sum(seconds))
    return spread(speeds)


def _tokens_per_s(samples: Sequence[StepSample]) -> float:
    """As the user sees it."""
    return sum(_tokens(samples)) / sum(sample.user.end_s for sample in samples)


def _tokens(samples: Sequence[StepSample]) -> list[int]:
    return [sample.generated_tokens for sample in samples]


def _repeats(samples: Sequence[StepSample]) -> list[int]:
    return sorted({sample.repeat for sample in samples})
