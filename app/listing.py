"""`octavo list`: the installed models, also those that cannot be used any more, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click

from app.ages import age
from app.tables import Column, write_table
from app.terminal import tolerate_encoding, write_json, write_text
from engine.errors import OctavoError
from engine.printable import one_line
from engine.units import format_bytes, short_count
from models.catalogue import Catalogue, InstalledModel
from models.inspect import ModelSummary, inspect_model
from models.locate import check_present


class _Row(NamedTuple):
    """An installed model. summary: what its files say, or the reason why they cannot be read."""

    model: InstalledModel
    summary: ModelSummary | OctavoError


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_models(as_json: bool) -> int:
    """Show the installed models."""
    tolerate_encoding()
    rows = [_Row(model, _summary(model)) for model in Catalogue().models()]
    if as_json:
        write_json({"models": [_as_dict(row) for row in rows]})
    elif rows:
        _write(rows)
    else:
        write_text(
            "No models are installed: 'octavo search WORDS' finds some, 'octavo pull USER/REPO' downloads one, "
            "'octavo import FILE' takes one that you have.\n"
        )
    return 0


def _summary(model: InstalledModel) -> ModelSummary | OctavoError:
    try:
        check_present(model)
        return inspect_model(model.files)
    except OctavoError as error:
        return error


def _write(rows: Sequence[_Row]) -> None:
    columns = (
        Column("name", is_key=True),
        Column("architecture", is_spare=True),
        Column("parameters", is_number=True, is_spare=True),
        Column("quantization", is_spare=True),
        Column("size", is_number=True),
        Column("context", is_number=True, is_spare=True),
        Column("engine"),
        Column("last used"),
    )
    now = datetime.now(UTC)
    write_table(columns, [_cells(row, now) for row in rows])
    failures = [row for row in rows if isinstance(row.summary, OctavoError)]
    if failures:
        lines = [f"{one_line(row.model.name)}: {row.summary}" for row in failures]
        write_text("\n" + "\n".join(lines) + "\n")


def _cells(row: _Row, now: datetime) -> tuple[str, ...]:
    size, used = format_bytes(row.model.n_bytes), age(row.model.last_used, now)
    match row.summary:
        case ModelSummary() as summary:
            parameters = short_count(summary.parameters)
            context = f"{summary.context:,}" if summary.context else ""
            engine = str(summary.engine)
            return row.model.name, summary.architecture, parameters, summary.quantization, size, context, engine, used
        case _:
            return row.model.name, "", "", "", size, "", "unusable", used


def _as_dict(row: _Row) -> dict[str, Any]:
    values = {
        "name": row.model.name,
        "files": [str(file) for file in row.model.files],
        "origin": str(row.model.origin),
        "source": row.model.source,
        "bytes": row.model.n_bytes,
        "added": _iso(row.model.added),
        "last_used": _iso(row.model.last_used),
    }
    match row.summary:
        case ModelSummary() as summary:
            return values | {
                "architecture": summary.architecture,
                "parameters": summary.parameters,
                "quantization": summary.quantization,
                "bits_per_weight": round(summary.bits_per_weight, 3),
                "context": summary.context,
                "engine": str(summary.engine),
                "error": None,
            }
        case error:
            return values | {"error": str(error)}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
