"""A record as text: plain for a terminal, Markdown for a page, CSV for a table, JSON for a program."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator
from typing import Any

from app.compare.conclusion import conclusion
from app.compare.record import Difference, Record, plain
from app.compare.report_tables import lane_name, tables
from app.compare.results import Results, results_of
from app.compare.statistics import Ratio, Spread
from app.compare.text_table import markdown_lines, plain_lines
from engine.printable import one_line
from engine.units import format_bytes, short_count


def as_json(record: Record) -> dict[str, Any]:
    """The whole record, with the results and the conclusion."""
    results = results_of(record)
    return {**record.as_dict(), "results": plain(results), "conclusion": conclusion(results, record.lanes[0])}


def as_plain(record: Record) -> str:
    """For people at a terminal."""
    results = results_of(record)
    lines = [part for line in _heading(record) for part in textwrap.wrap(line, _WIDTH)] + [""]
    for table in tables(results):
        lines += [*plain_lines(table), ""]
    for text in (*_remarks(record), "", conclusion(results, record.lanes[0])):
        lines += textwrap.wrap(text, _WIDTH, break_on_hyphens=False) or [""]
    return "\n".join(lines) + "\n"


def as_markdown(record: Record) -> str:
    """For a page such as a README."""
    results = results_of(record)
    lines = [f"**{conclusion(results, record.lanes[0])}**", ""]
    for table in tables(results):
        lines += [*markdown_lines(table), ""]
    lines += [f"- {line}" for line in (*_heading(record), *_remarks(record))]
    return "\n".join(lines) + "\n"


_WIDTH = 110
"""Of plain sentences; tables are as wide as they are."""

_CSV_COLUMNS = ("part", "test", "lane", "variant", "figure", "median", "least", "most", "n")
_CSV_RATIO = ("ratio", "ratio_low", "ratio_high", "verdict")


def as_csv(record: Record) -> str:
    """One figure a line; ratios stand in the line of the figure that they are of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS + _CSV_RATIO)
    writer.writerows(_csv_rows(results_of(record)))
    return text.getvalue()


def _csv_rows(results: Results) -> Iterator[tuple[object, ...]]:
    for figure in results.session:
        for number, speed in enumerate(figure.variants):
            key = ("session", "", figure.lane, speed.variant)
            yield (*key, "tokens_per_s", *speed.tokens_per_s, *_csv_ratio(figure.ratio if number == 0 else None))
    for row in results.steps:
        for step in row.lanes:
            key = ("step", row.step, step.lane, step.variant)
            yield (*key, "end_s", *step.end_s, *_csv_ratio(step.ratio))
            spreads = {
                "first_s": step.first_s,
                "decode_tokens_per_s": step.decode_tokens_per_s,
                "engine_first_s": step.engine_first_s,
                "engine_decode_tokens_per_s": step.engine_decode_tokens_per_s,
            }
            for name, spread in spreads.items():
                if spread is not None:
                    yield (*key, name, *spread, *_csv_ratio(None))
            counts = {
                "generated_tokens": step.generated_tokens,
                "computed_tokens": step.computed_tokens,
                "reused_tokens": step.reused_tokens,
            }
            for name, count in counts.items():
                if count is not None:
                    yield (*key, name, *Spread(count, count, count, 1), *_csv_ratio(None))
    for test in results.raw:
        for raw in test.lanes:
            for number, speed in enumerate(raw.variants):
                ratio = raw.ratio if number == 0 else None
                yield (
                    "raw",
                    test.test,
                    raw.lane,
                    speed.variant,
                    "tokens_per_s",
                    *speed.tokens_per_s,
                    *_csv_ratio(ratio),
                )


def _csv_ratio(ratio: Ratio | None) -> tuple[object, ...]:
    return ("",) * 4 if ratio is None else (ratio.value, ratio.low, ratio.high, ratio.verdict)


def _heading(record: Record) -> list[str]:
    model, machine, settings = record.model, record.machine, record.settings
    threads = "as many threads as each engine chooses" if settings.threads is None else f"{settings.threads} threads"
    return [
        f"{one_line(model.file)}: {one_line(model.architecture)}, {model.quantization}, "
        f"{short_count(model.parameters)} parameters, {format_bytes(model.n_bytes)}",
        f"{machine.processor}, {machine.cores} cores, on {machine.device}; {machine.system}",
        f"Octavo {machine.octavo}, llama-cpp-python {machine.llama_cpp_python}; a window of {settings.context:,} "
        f"tokens, keys and values in {settings.kv_type}, {threads}",
        _how(record),
    ]


def _how(record: Record) -> str:
    settings, busy = record.settings, record.busy
    text = f"Measured {record.created}, {settings.mode}, the session {settings.repeat} times"
    if busy is None or busy.others_during is None:
        return text
    before = "" if busy.others_before is None else f"{busy.others_before:.2f} before and "
    text = (
        f"{text}; other programs kept {before}{busy.others_during:.2f} of {record.machine.processors} processors busy "
        "meanwhile"
    )
    return f"{text}, which disturbs it" if busy.is_busy else text


def _remarks(record: Record) -> list[str]:
    """What one should know to believe the figures, or not."""
    lines = [
        "A ratio is how many times as fast as the first lane a lane is, with a 95% interval, or without one where "
        "there were too few runs for it. Of a lane's variants the faster one counts; the other is measured less often.",
        *_cold_starts(record),
        *_sameness(record),
        *dict.fromkeys(one_line(facts.notice) for facts in record.variants if facts.notice),
        *map(one_line, record.notes),
    ]
    for error in record.errors:
        where = f" at {error.test}" if error.test else ""
        lines.append(f"{lane_name(error.lane, error.variant)} failed{where}: {one_line(error.message)}")
    return lines


def _cold_starts(record: Record) -> list[str]:
    """Whose cache did not outlive the step that leaves the program."""
    lost = dict.fromkeys(one_line(sample.lane) for sample in record.session if sample.cache_survived is False)
    if not lost:
        return []
    return [f"After quitting, the cache was empty and the whole prompt was computed again: {', '.join(lost)}."]


def _sameness(record: Record) -> list[str]:
    """Whether all gave the same answers."""
    samples = [sample for sample in record.session if sample.answers == 1]
    greedy = {sample.step for sample in samples}
    variants = dict.fromkeys((sample.lane, sample.variant) for sample in samples if sample.tells_tokens)
    lines = []
    for lane, variant in variants:
        found = [each for each in record.differences if (each.lane, each.variant) == (lane, variant)]
        if found:
            lines.append(
                f"{lane_name(lane, variant)} gave another answer than the reference in {len(found)} of {len(greedy)} "
                f"greedy steps: {', '.join(map(_where, found))}."
            )
    if greedy and not lines and len(variants) > 1:
        return ["All lanes gave the same greedy answers, token by token."]
    return lines


def _where(difference: Difference) -> str:
    gap = "" if difference.gap is None else f", logits {abs(difference.gap):.3f} apart"
    return f"{difference.step} (from token {difference.position + 1} on{gap})"
