"""What `octavo quantize` prints, for people and as JSON."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from app.tables import Column, write_table
from app.terminal import write_json, write_text
from engine.memory import available_memory
from engine.printable import one_line, quoted
from engine.units import format_bytes
from models.catalogue import InstalledModel
from models.quantization.plan import Plan, Settings
from models.quantization.quality import Quality
from models.quantization.quantize import describe_fallbacks, disk_needed, free_disk, piece_bytes
from models.quantization.types import FILE_TYPES

_NOTES = (
    "Bits per weight are of a model like Llama 3.1 8B; a dry run tells yours.\n"
    "Perplexity is what Llama 3 8B loses against F16, where llama.cpp tells it.\n"
)


def write_types(*, as_json: bool) -> None:
    """The types to choose from, as a table or as JSON. Raises OctavoError when it cannot be written."""
    if as_json:
        fields = ("name", "bits", "quality", "added_perplexity", "needs_imatrix")
        write_json({"types": [{field: getattr(kind, field) for field in fields} for kind in FILE_TYPES]})
        return
    columns = (
        Column("TYPE", is_key=True),
        Column("BITS/WEIGHT", is_number=True),
        Column("PERPLEXITY", is_number=True),
        Column("IMATRIX"),
        Column("QUALITY"),
    )
    rows = [
        (
            kind.name,
            f"{kind.bits:.2f}",
            "" if kind.added_perplexity is None else f"{kind.added_perplexity:+.3f}",
            "needed" if kind.needs_imatrix else "",
            kind.quality,
        )
        for kind in FILE_TYPES
    ]
    write_table(columns, rows)
    write_text(_NOTES)


def describe_plan(plan: Plan, settings: Settings, name: str, out: Path, *, is_converted: bool) -> str:
    """What will come out, and what that takes. is_converted: see `disk_needed`."""
    lines = [
        f"{one_line(name)} as {settings.type.name}:",
        f"{_sizes(plan)}.",
        f"Needs {format_bytes(disk_needed(plan, is_converted=is_converted))} of disk, "
        f"{format_bytes(free_disk(out))} are free;",
        f"up to {format_bytes(plan.work_bytes(piece_bytes()))} of memory, "
        f"{format_bytes(available_memory())} are available.",
    ]
    if plan.fallbacks:
        lines += textwrap.wrap(f"{describe_fallbacks(plan)}.", 80)
    return "\n".join(lines) + "\n"


def describe_result(plan: Plan, model: InstalledModel, seconds: float) -> str:
    """What has come out."""
    return (
        f"{quoted(model.name)} is installed, made in {seconds:.1f} s:\n"
        f"{_sizes(plan)}.\n"
        f"{one_line(str(model.path))}\n"
        f'To run it: octavo run {model.name} "Why is the sky blue?"\n'
    )


def describe_quality(quality: Quality) -> str:
    """What was lost."""
    more = round(quality.made_perplexity / quality.source_perplexity - 1, 3) + 0.0  # which makes 0.0 of -0.0
    return (
        f"Perplexity {quality.source_perplexity:.3f} to {quality.made_perplexity:.3f} ({more:+.1%}), "
        f"KL divergence {quality.divergence:.4f} nats,\n"
        f"the same likeliest token {quality.agreement:.1%} of the time, in {quality.n_predictions:,} predictions.\n"
    )


def _sizes(plan: Plan) -> str:
    return (
        f"{format_bytes(plan.bytes_before)} to {format_bytes(plan.bytes_after)}, {plan.bits_before:.2f} to "
        f"{plan.bits_after:.2f} bits per weight"
    )


def plan_as_dict(plan: Plan, settings: Settings, out: Path, *, is_converted: bool) -> dict[str, Any]:
    """The fields that `--json` prints of a dry run. Sizes in bytes."""
    return {
        "type": settings.type.name,
        "output": str(out.absolute()),
        "bytes_before": plan.bytes_before,
        "bytes_after": plan.bytes_after,
        "bits_before": round(plan.bits_before, 4),
        "bits_after": round(plan.bits_after, 4),
        "tensors": len(plan.tensors),
        "fallbacks": [{"name": tensor.name, "row": tensor.row, "type": tensor.after} for tensor in plan.fallbacks],
        "fallback_share": round(plan.fallback_share, 4),
        "disk_needed": disk_needed(plan, is_converted=is_converted),
        "disk_free": free_disk(out),
        "memory_needed": plan.work_bytes(piece_bytes()),
        "memory_available": available_memory(),
    }


def result_as_dict(model: InstalledModel, seconds: float, quality: Quality | None) -> dict[str, Any]:
    """The fields that `--json` adds when the file is written. bytes_after: what it has really taken."""
    fields = {"name": model.name, "bytes_after": model.n_bytes, "seconds": round(seconds, 3)}
    return fields | ({"quality": quality._asdict()} if quality else {})
