"""The tables of a report. Rows are what results.py computed; the first column names a test or a lane."""

from __future__ import annotations

from collections.abc import Sequence

from app.compare.lanes import LaneMemory
from app.compare.results import Results
from app.compare.statistics import Ratio, Spread, Verdict
from app.compare.text_table import Heading, Table
from engine.printable import one_line
from engine.units import format_bytes

NONE = "–"
"""Where nobody tells, or there is nothing to tell."""


def tables(results: Results) -> list[Table]:
    """Those that have rows."""
    found = [_session_table(results), _step_table(results), _raw_table(results), _memory_table(results)]
    return [table for table in found if table.rows]


def lane_name(lane: str, variant: str) -> str:
    """How a lane and one of its variants are called together."""
    return one_line(f"{lane}, {variant}" if variant else lane)


def ratio_text(ratio: Ratio | None) -> str:
    """Such as "1.31 (1.24–1.37)", with what it does not say; without an interval where there were too few runs."""
    if ratio is None:
        return NONE
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}"
    text = f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"
    return f"{text} no difference" if ratio.verdict is Verdict.NO_DIFFERENCE else text


def _session_table(results: Results) -> Table:
    rows: list[tuple[str, ...]] = []
    for figure in results.session:
        best, *others = figure.variants
        rows.append(
            (
                lane_name(figure.lane, best.variant),
                speed_text(best.tokens_per_s),
                _range(best.tokens_per_s),
                ratio_text(figure.ratio),
                speed_text(figure.engine_tokens_per_s),
                milliseconds_text(figure.first_s),
                count_text(figure.computed_tokens),
                count_text(figure.reused_tokens),
            )
        )
        for other in others:
            name = lane_name(figure.lane, other.variant)
            rows.append((name, speed_text(other.tokens_per_s), _range(other.tokens_per_s), *[NONE] * 5))
    headings = ("tokens/s", "least–most", "ratio", "engine tokens/s", "TTFT ms", "computed", "reused")
    title = "A single user's session: generated tokens by the time in which the user waited"
    return _table(title, "lane", headings, rows)


def _step_table(results: Results) -> Table:
    rows = []
    for row in results.steps:
        for figure in row.lanes:
            rows.append(
                (
                    row.step,
                    lane_name(figure.lane, figure.variant),
                    milliseconds_text(figure.first_s),
                    speed_text(figure.decode_tokens_per_s),
                    count_text(figure.computed_tokens),
                    count_text(figure.reused_tokens),
                    f"{figure.end_s.median:.2f}",
                    ratio_text(figure.ratio),
                )
            )
    headings = (Heading("lane", is_number=False), "TTFT ms", "tokens/s", "computed", "reused", "s", "ratio")
    return _table("Step by step, as the user sees it", "step", headings, rows)


def _raw_table(results: Results) -> Table:
    rows = []
    for row in results.raw:
        for figure in row.lanes:
            for speed in figure.variants:
                is_best = speed is figure.variants[0]
                rows.append(
                    (
                        row.test,
                        lane_name(figure.lane, speed.variant),
                        speed_text(speed.tokens_per_s),
                        _range(speed.tokens_per_s),
                        ratio_text(figure.ratio if is_best else None),
                    )
                )
    headings = (Heading("lane", is_number=False), "tokens/s", "least–most", "ratio")
    return _table("Raw speed, as the engine tells", "test", headings, rows)


def _memory_table(results: Results) -> Table:
    rows = [
        (lane_name(figure.lane, figure.variants[0].variant), *memory_texts(figure.memory))
        for figure in results.session
        if figure.memory is not None and figure.memory != LaneMemory(None, None, None, None)
    ]
    headings = ("KV used", "KV reserved", "KV resident", "waste", "process")
    return _table("Memory, when the cache held the most", "lane", headings, rows)


def _table(title: str, first: str, headings: tuple[str | Heading, ...], rows: Sequence[tuple[str, ...]]) -> Table:
    others = (heading if isinstance(heading, Heading) else Heading(heading) for heading in headings)
    return Table(title, (Heading(first, is_number=False), *others), tuple(rows))


def memory_texts(memory: LaneMemory) -> tuple[str, ...]:
    """KV used, reserved, resident, waste, and the process."""
    used, reserved, resident, process = (NONE if n is None else format_bytes(n) for n in memory)
    return used, reserved, resident, NONE if memory.waste is None else f"{memory.waste:.1%}", process


def speed_text(spread: Spread | None) -> str:
    """Of tokens per second."""
    return NONE if spread is None else f"{spread.median:,.1f}"


def _range(spread: Spread) -> str:
    return NONE if spread.n == 1 else f"{spread.least:,.1f}–{spread.most:,.1f}"


def milliseconds_text(spread: Spread) -> str:
    """Of seconds."""
    return f"{spread.median * 1000:,.0f}"


def count_text(n: int | None) -> str:
    """Of tokens."""
    return NONE if n is None else f"{n:,}"
