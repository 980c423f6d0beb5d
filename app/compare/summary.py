"""The few figures that tell what a lane is worth, one a line, with a column for each lane and its ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.compare.report_tables import NONE, count_text, memory_texts, milliseconds_text, speed_text
from app.compare.results import Results
from app.compare.samples import in_order
from app.compare.session_results import SessionFigure
from app.compare.statistics import Ratio


class SummaryRow(NamedTuple):
    """texts, ratios: for each lane. A ratio is None where there is none."""

    name: str
    texts: tuple[str, ...]
    ratios: tuple[Ratio | None, ...]


class Summary(NamedTuple):
    """session: of a single user's session. raw: for each test."""

    lanes: tuple[str, ...]
    session: tuple[SummaryRow, ...]
    raw: tuple[SummaryRow, ...]


def summary_of(results: Results, lanes: Sequence[str], tests: Sequence[str] = ()) -> Summary:
    """lanes: in the order of columns. tests: which are to come; they have a row before they have a figure."""
    session = {figure.lane: figure for figure in results.session}
    by_test = {row.test: {figure.lane: figure for figure in row.lanes} for row in results.raw}
    raw = []
    for test in in_order((*by_test, *tests)):
        figures = [by_test.get(test, {}).get(lane) for lane in lanes]
        texts = tuple(speed_text(figure.variants[0].tokens_per_s) if figure else NONE for figure in figures)
        raw.append(SummaryRow(test, texts, tuple(figure.ratio if figure else None for figure in figures)))
    return Summary(tuple(lanes), _session_rows([session.get(lane) for lane in lanes]), tuple(raw))


def _session_rows(figures: Sequence[SessionFigure | None]) -> tuple[SummaryRow, ...]:
    if not any(figures):
        return ()
    no_ratios = (None,) * len(figures)

    def row(name: str, text: Callable[[SessionFigure], str]) -> SummaryRow:
        return SummaryRow(name, tuple(NONE if figure is None else text(figure) for figure in figures), no_ratios)

    speed = row("tokens/s, one user", lambda figure: speed_text(figure.tokens_per_s))
    names = ("KV used", "KV reserved", "KV resident", "KV waste", "process memory")
    columns = [memory_texts(figure.memory) if figure and figure.memory else (NONE,) * len(names) for figure in figures]
    memories = [SummaryRow(name, tuple(texts), no_ratios) for name, *texts in zip(names, *columns, strict=True)]
    return (
        speed._replace(ratios=tuple(figure.ratio if figure else None for figure in figures)),
        row("tokens/s, engine", lambda figure: speed_text(figure.engine_tokens_per_s)),
        row("first token, ms", lambda figure: milliseconds_text(figure.first_s)),
        row("prompt computed", lambda figure: count_text(figure.computed_tokens)),
        row("prompt reused", lambda figure: count_text(figure.reused_tokens)),
        *memories,
    )
