"""What the samples of a record come to: the figures that tables show, and the ratios between lanes.

A lane's figure is that of its faster variant, chosen for each measurement; the others are kept beside it.
Ratios are those of a lane to the first one: above 1 the lane is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.compare.record import RawSample, Record, StepSample
from app.compare.samples import VariantSpeed, by_variant, fastest, in_order, pairs
from app.compare.session_results import SessionFigure, session_figures
from app.compare.statistics import Ratio, Spread, paired_ratio, spread


@dataclass(frozen=True)
class RawFigure:
    """A lane in a test, as the engine tells. variants: the fastest first. ratio: None of the first lane, and where no
    pair was measured.
    """

    lane: str
    variants: tuple[VariantSpeed, ...]
    ratio: Ratio | None


@dataclass(frozen=True)
class RawRow:
    """One test, such as "pp512 @ d0"."""

    test: str
    lanes: tuple[RawFigure, ...]


@dataclass(frozen=True)
class StepFigure:
    """A lane in a step, as the user sees it but for `engine_*`. Numbers of tokens are those of the last repeat.

    variant: the one that took less time from submission to the end. decode_*: tokens per second after the first token,
    None where no more than one was generated. ratio: of the seconds from submission to the end.
    """

    lane: str
    variant: str
    first_s: Spread
    end_s: Spread
    decode_tokens_per_s: Spread | None
    engine_first_s: Spread | None
    engine_decode_tokens_per_s: Spread | None
    generated_tokens: int
    prompt_tokens: int | None
    reused_tokens: int | None
    computed_tokens: int | None
    cache_survived: bool | None
    ratio: Ratio | None


@dataclass(frozen=True)
class StepRow:
    """One step of the session."""

    step: str
    lanes: tuple[StepFigure, ...]


@dataclass(frozen=True)
class Results:
    """All figures; empty where nothing was measured."""

    session: tuple[SessionFigure, ...]
    steps: tuple[StepRow, ...]
    raw: tuple[RawRow, ...]


def results_of(record: Record) -> Results:
    """The figures of all that was measured so far."""
    return Results(
        session=session_figures(record),
        steps=tuple(_step_row(record, step) for step in in_order(sample.step for sample in record.session)),
        raw=tuple(_raw_row(record, test) for test in in_order(sample.test for sample in record.raw)),
    )


def _raw_row(record: Record, test: str) -> RawRow:
    samples = [sample for sample in record.raw if sample.test == test]
    by_lane = {lane: by_variant(samples, lane, _seconds_per_token) for lane in record.lanes}
    base = fastest(by_lane[record.lanes[0]])
    return RawRow(test, tuple(_raw_figure(lane, by_lane[lane], base) for lane in record.lanes if by_lane[lane]))


def _raw_figure(lane: str, variants: Mapping[str, list[RawSample]], base: Sequence[RawSample]) -> RawFigure:
    speeds = (
        VariantSpeed(variant, spread([sample.n_tokens / sample.engine_s for sample in samples]))
        for variant, samples in variants.items()
    )
    paired = pairs(base, fastest(variants), lambda sample: sample.round, _seconds_per_token)
    is_base = bool(base) and base[0].lane == lane
    return RawFigure(
        lane,
        tuple(speeds),
        paired_ratio(paired) if paired and not is_base else None,
    )


def _seconds_per_token(sample: RawSample) -> float:
    return sample.engine_s / sample.n_tokens


def _step_row(record: Record, step: str) -> StepRow:
    samples = [sample for sample in record.session if sample.step == step]
    by_lane = {lane: by_variant(samples, lane, lambda sample: sample.user.end_s) for lane in record.lanes}
    base = fastest(by_lane[record.lanes[0]])
    figures = (_step_figure(fastest(by_lane[lane]), base) for lane in record.lanes if by_lane[lane])
    return StepRow(step, tuple(figures))


def _step_figure(samples: Sequence[StepSample], base: Sequence[StepSample]) -> StepFigure:
    last = samples[-1]
    paired = pairs(base, samples, lambda sample: sample.repeat, lambda sample: sample.user.end_s)
    is_base = bool(base) and base[0].lane == last.lane
    engines = [(sample.generated_tokens, sample.engine) for sample in samples if sample.engine is not None]
    return StepFigure(
        lane=last.lane,
        variant=last.variant,
        first_s=spread([sample.user.first_s for sample in samples]),
        end_s=spread([sample.user.end_s for sample in samples]),
        decode_tokens_per_s=_speeds((sample.generated_tokens, sample.user.decode_s) for sample in samples),
        engine_first_s=spread([engine.first_s for _, engine in engines]) if engines else None,
        engine_decode_tokens_per_s=_speeds((n_tokens, engine.decode_s) for n_tokens, engine in engines),
        generated_tokens=last.generated_tokens,
        prompt_tokens=last.prompt_tokens,
        reused_tokens=last.reused_tokens,
        computed_tokens=last.computed_tokens,
        cache_survived=last.cache_survived,
        ratio=paired_ratio(paired) if paired and not is_base else None,
    )


def _speeds(answers: Iterable[tuple[int, float]]) -> Spread | None:
    """Of numbers of tokens and seconds from the first of them to the last; where there is only one, there is none."""
    speeds = [(n_tokens - 1) / seconds for n_tokens, seconds in answers if n_tokens > 1 and seconds > 0]
    return spread(speeds) if speeds else None
