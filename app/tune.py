"""`octavo tune`: measure what is fastest on this machine for a model, and show the times."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from app.terminal import StatusLine, write_line, write_text
from engine.attention_choice import NEVER, AttentionChoice
from engine.client import EngineClient
from engine.config import EngineConfig
from engine.tuning import ChunkTimes, DecodeTimes, Speed, TuningReport


def tune_model(path: Path, config: EngineConfig, *, as_json: bool) -> int:
    """Measure in an engine's process, which remembers the result; returns the exit code.

    config: asks for the paged engine on the CPU and names the file. Raises what load_engine raises, or EngineDied.
    """
    status = StatusLine()

    def on_loading(fraction: float) -> None:
        status.show(f"Measuring {path.name}: {fraction:.0%}")

    with EngineClient(path, replace(config, retune=True), on_loading) as client:
        try:
            report = client.load().tuning
        finally:
            status.clear()
    assert report is not None
    if as_json:
        write_line(json.dumps(as_dict(report, str(path)), ensure_ascii=False))
    else:
        write_text(as_text(report, path.name))
    if not report.remembered:
        status.note(f"The settings cannot be written to {config.tuning_file}: the next start measures again.")
    return 0


def as_dict(report: TuningReport, model: str) -> dict[str, Any]:
    """The object that `--json` prints. Times in microseconds; a number of columns that is never reached is null."""
    tuning = report.tuning
    choice = tuning.attention
    return {
        "model": model,
        "processor": report.processor,
        "remembered": report.remembered,
        "settings": {
            "threads": tuning.threads,
            "chunk_tokens": tuning.chunk_tokens,
            "unpacked_columns": choice.unpacked_columns,
            "ahead_columns": choice.ahead_columns if choice.ahead_columns < NEVER else None,
            "flash": choice.flash,
        },
        "decode_attention": [
            {
                "columns": row.columns,
                "unpacked_us": _microseconds(row.unpacked),
                "packed_us": _microseconds(row.packed),
                "ahead_us": _microseconds(row.ahead),
                "chosen": chosen_composition(choice, row.columns),
            }
            for row in report.attention.decodes
        ],
        "chunk_attention": [
            {
                "tokens": row.n_tokens,
                "known_tokens": row.n_known,
                "flash_us": _microseconds(row.flash),
                "packed_us": _microseconds(row.packed),
                "chosen": "flash" if choice.flash else "packed",
            }
            for row in report.attention.chunks
        ],
        "n_layers": report.n_layers,
        "chunks": _speeds_as_dict("chunk_tokens", report.chunks, report.chunk_layers),
        "threads": _speeds_as_dict("threads", report.threads, report.thread_layers),
    }


def _speeds_as_dict(setting: str, speeds: Iterable[Speed], n_layers: int) -> dict[str, Any]:
    rows = [{setting: speed.value, "tok_s": round(speed.tokens_per_s, 1)} for speed in speeds]
    return {"measured_layers": n_layers, "speeds": rows}


def chosen_composition(choice: AttentionChoice, columns: int) -> str:
    """The field of DecodeTimes that a decode which reads so many slots belongs to."""
    if columns <= choice.unpacked_columns:
        return "unpacked"
    return "ahead" if columns >= choice.ahead_columns else "packed"


class _Cell(NamedTuple):
    text: str
    is_chosen: bool = False


def as_text(report: TuningReport, model: str) -> str:
    """Tables for people; what was chosen has a star."""
    tuning = report.tuning
    return "\n".join(
        [
            f"{model} on {report.processor}; * is chosen",
            "",
            *_decode_table(report.attention.decodes, tuning.attention),
            "",
            *_chunk_table(report.attention.chunks, tuning.attention),
            "",
            *_speed_table(
                f"Prefill, tokens/s through {report.chunk_layers} of {report.n_layers} layers",
                "tokens a step",
                report.chunks,
                tuning.chunk_tokens,
            ),
            "",
            *_speed_table(
                f"Decoding, tokens/s through {report.thread_layers} of {report.n_layers} layers and the output",
                "threads",
                report.threads,
                tuning.threads,
            ),
            "",
        ]
    )


def _decode_table(rows: Sequence[DecodeTimes], choice: AttentionChoice) -> list[str]:
    lines = []
    for row in rows:
        chosen = chosen_composition(choice, row.columns)
        cells = [_Cell(_time(getattr(row, name)), name == chosen) for name in ("unpacked", "packed", "ahead")]
        lines.append([_Cell(f"{row.columns:,}"), *cells])
    titles = ("slots read", "unpacked", "packed", "keys ahead")
    return ["Attention of one token, µs a layer", *_table(titles, lines)]


def _chunk_table(rows: Sequence[ChunkTimes], choice: AttentionChoice) -> list[str]:
    lines = [
        [_Cell(f"{row.n_known:,}"), _Cell(_time(row.flash), choice.flash), _Cell(_time(row.packed), not choice.flash)]
        for row in rows
    ]
    return [
        f"Attention of {rows[0].n_tokens} tokens, µs a layer",
        *_table(("known tokens", "flash", "packed"), lines),
    ]


def _speed_table(title: str, setting: str, speeds: Sequence[Speed], chosen: int) -> list[str]:
    if not speeds:
        return [f"{setting.capitalize()}: {chosen}, not measured"]
    lines = [[_Cell(f"{value:,}", value == chosen), _Cell(f"{speed:,.1f}")] for value, speed in speeds]
    return [title, *_table((setting, "tokens/s"), lines)]


def _table(titles: Sequence[str], lines: Iterable[Sequence[_Cell]]) -> list[str]:
    """Right-aligned columns."""
    rows = [[_Cell(title) for title in titles], *lines]
    return ["".join(f"{'* ' if cell.is_chosen else ''}{cell.text}".rjust(14) for cell in row) for row in rows]


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def _time(seconds: float) -> str:
    return f"{_microseconds(seconds):,.1f}"
