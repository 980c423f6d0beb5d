"""The page that `octavo show` prints of a model, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.ages import age
from app.free_memory import free_memory
from app.tables import Column, write_table
from app.terminal import write_text
from engine.config import EngineKind
from engine.printable import one_line
from engine.units import format_bytes, short_count
from models.catalogue import InstalledModel
from models.fit import OVERHEAD, FitEstimate, Machine, estimate
from models.inspect import ModelSummary

_CONTEXTS = (2048, 8192, 32768, 131072, 524288, 2097152)
"""Numbers of tokens that memory is shown for, up to what the model was trained on."""


class _MemoryRow(NamedTuple):
    """What a model needs with a context of so many tokens, in bytes."""

    context: int
    kv: int
    estimate: FitEstimate


def write_page(summary: ModelSummary, installed: InstalledModel | None, machine: Machine) -> None:
    """installed: the model's place in the catalogue, None for a file outside it. Raises OctavoError."""
    lines = list(_lines(summary, installed))
    width = max(len(label) for label, _ in lines)
    write_text(f"{one_line(installed.name if installed else summary.paths[0].name)}\n")
    write_text("".join(f"  {label:{width}}  {one_line(text)}\n" for label, text in lines) + "\n")
    _write_types(summary)
    _write_memory(summary, machine)


def _lines(summary: ModelSummary, installed: InstalledModel | None) -> Iterator[tuple[str, str]]:
    """Labels and what stands beside them."""
    yield "file", str(summary.paths[0])
    if len(summary.paths) > 1:
        yield "", f"and {len(summary.paths) - 1:,} more, to {summary.paths[-1].name}"
    yield "size", format_bytes(summary.n_bytes)
    if installed:
        yield "source", f"{installed.origin}: {installed.source}"
        yield "last used", age(installed.last_used, datetime.now(UTC))
    name = summary.text("general.name")
    yield "architecture", summary.architecture + (f" ({name})" if name else "")
    yield "parameters", f"{short_count(summary.parameters)} ({summary.parameters:,})"
    yield "quantization", f"{summary.quantization}, {summary.bits_per_weight:.2f} bits per weight"
    yield "context", f"{summary.context:,} tokens" if summary.context else "not told"
    yield "shape", _shape(summary)
    yield "tokenizer", _tokenizer(summary)
    template = summary.chat_template
    yield "chat template", f"{len(template):,} characters (--template prints it)" if template else "none"
    licence = summary.text("general.license")
    if licence:
        yield "licence", licence
    yield "engine", f"{summary.engine}. {summary.reason}" if summary.reason else str(summary.engine)
    kv = summary.kv_bytes_per_token
    yield "KV cache", "not told" if kv is None else f"{format_bytes(kv)} a token, as f16"


def _shape(summary: ModelSummary) -> str:
    """Layers, heads and widths, as far as each is one number for all layers."""
    named = (
        ("block_count", "{:,} layers"),
        ("attention.head_count", "{:,} heads"),
        ("attention.head_count_kv", "{:,} KV heads"),
        ("embedding_length", "embedding {:,}"),
        ("feed_forward_length", "feed-forward {:,}"),
        ("expert_count", "{:,} experts"),
        ("expert_used_count", "{:,} of them at a time"),
    )
    sizes = ((summary.size(key), text) for key, text in named)
    return ", ".join(text.format(size) for size, text in sizes if size) or "not told"


def _tokenizer(summary: ModelSummary) -> str:
    parts = [summary.text("tokenizer.ggml.model") or "none"]
    pre = summary.text("tokenizer.ggml.pre")
    if pre:
        parts.append(f"as {pre}")
    if summary.vocabulary:
        parts.append(f"{summary.vocabulary:,} tokens")
    return ", ".join(parts)


def _write_types(summary: ModelSummary) -> None:
    columns = (
        Column("tensors of type"),
        Column("count", is_number=True),
        Column("parameters", is_number=True),
        Column("size", is_number=True),
        Column("bits/weight", is_number=True),
    )
    rows = [
        (
            share.name,
            f"{share.n_tensors:,}",
            short_count(share.parameters),
            format_bytes(share.n_bytes),
            f"{share.bits_per_weight:.2f}",
        )
        for share in summary.tensor_types
    ]
    write_table(columns, rows)


def _write_memory(summary: ModelSummary, machine: Machine) -> None:
    rows = _memory(summary, machine)
    if not rows:
        return
    columns = (
        Column("context", is_number=True),
        Column("weights", is_number=True),
        Column("KV cache", is_number=True),
        Column("overhead", is_number=True),
        Column("memory", is_number=True),
        Column("fit"),
    )
    cells = [
        (
            f"{row.context:,}",
            format_bytes(summary.weight_bytes),
            format_bytes(row.kv),
            format_bytes(OVERHEAD),
            format_bytes(row.estimate.needed),
            str(row.estimate.fit),
        )
        for row in rows
    ]
    write_text("\n")
    write_table(columns, cells)
    last = rows[-1]
    reserved = (
        f"llama.cpp reserves {format_bytes(last.kv)} for the whole window of {last.context:,} tokens at the start"
    )
    grown = "; the paged engine takes memory as a conversation grows" if summary.engine is EngineKind.PAGED else ""
    write_text(f"\n{free_memory(machine)}; {reserved}{grown}.\n")


def _memory(summary: ModelSummary, machine: Machine) -> list[_MemoryRow]:
    kv, trained = summary.kv_bytes_per_token, summary.context
    if kv is None or not trained:
        return []
    contexts = [*(context for context in _CONTEXTS if context < trained), trained]
    return [
        _MemoryRow(context, kv * context, estimate(summary.weight_bytes, kv, context, machine)) for context in contexts
    ]


def as_dict(summary: ModelSummary, installed: InstalledModel | None, machine: Machine) -> dict[str, Any]:
    """The object that `--json` prints. Sizes in bytes."""
    return {
        "name": installed.name if installed else None,
        "files": [str(path) for path in summary.paths],
        "bytes": summary.n_bytes,
        "origin": str(installed.origin) if installed else None,
        "source": installed.source if installed else None,
        "last_used": installed.last_used.isoformat() if installed and installed.last_used else None,
        "architecture": summary.architecture,
        "parameters": summary.parameters,
        "quantization": summary.quantization,
        "bits_per_weight": round(summary.bits_per_weight, 3),
        "context": summary.context,
        "layers": summary.size("block_count"),
        "embedding": summary.size("embedding_length"),
        "vocabulary": summary.vocabulary,
        "tokenizer": summary.text("tokenizer.ggml.model"),
        "licence": summary.text("general.license"),
        "has_chat_template": summary.chat_template is not None,
        "engine": str(summary.engine),
        "reason": summary.reason or None,
        "kv_bytes_per_token": summary.kv_bytes_per_token,
        "tensor_types": [
            {
                "type": share.name,
                "tensors": share.n_tensors,
                "parameters": share.parameters,
                "bytes": share.n_bytes,
                "bits_per_weight": round(share.bits_per_weight, 3),
            }
            for share in summary.tensor_types
        ],
        "memory_free": machine.available,
        "gpu_free": machine.gpu_free,
        "memory": [
            {
                "context": row.context,
                "weights": summary.weight_bytes,
                "kv": row.kv,
                "needed": row.estimate.needed,
                "fit": str(row.estimate.fit),
            }
            for row in _memory(summary, machine)
        ],
    }
