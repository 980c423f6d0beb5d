"""`octavo search`: repositories with GGUF files on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from app.tables import Column, write_table
from app.terminal import StatusLine, tolerate_encoding, write_json
from engine.printable import quoted
from engine.units import format_bytes, short_count
from models.errors import HubError
from models.hub.search import FoundRepository
from models.hub.search import search as search_hub
from models.hub.variants import Variant, offered

_USUAL = "Q4_K_M"


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Repositories to show.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def search(words: tuple[str, ...], limit: int, as_json: bool) -> int:
    """Find repositories with GGUF files on the Hugging Face hub whose names contain all WORDS.

    The most downloaded come first. 'octavo pull NAME' shows what one offers this machine.
    """
    tolerate_encoding()
    status = StatusLine()
    status.show("Searching the hub")
    try:
        found = search_hub(words, limit)
    finally:
        status.clear()
    if as_json:
        write_json({"repositories": [_as_dict(one) for one in found]})
        return 0
    if not found:
        raise HubError(f"The hub has no repository with GGUF files named {quoted(' '.join(words))}: try fewer words.")
    _write(found)
    return 0


def _write(found: Sequence[FoundRepository]) -> None:
    columns = (
        Column("repository", is_key=True),
        Column("downloads", is_number=True),
        Column("updated", is_number=True),
        Column("parameters", is_number=True, is_spare=True),
        Column(_USUAL, is_number=True, is_spare=True),
        Column("all sizes", is_number=True),
    )
    write_table(columns, [_row(one) for one in found])


def _row(one: FoundRepository) -> Sequence[str]:
    variants = offered(one.variants)
    usual = next((variant for variant in variants if variant.quantization == _USUAL), None)
    return (
        one.name + (" (gated)" if one.is_gated else ""),
        short_count(one.downloads),
        one.updated.date().isoformat() if one.updated else "",
        short_count(one.parameters) if one.parameters else "",
        format_bytes(usual.n_bytes) if usual else "",
        _sizes(variants),
    )


def _sizes(variants: Sequence[Variant]) -> str:
    if not variants:
        return ""
    smallest, largest = format_bytes(variants[0].n_bytes), format_bytes(variants[-1].n_bytes)
    return smallest if smallest == largest else f"{smallest} – {largest}"


def _as_dict(one: FoundRepository) -> dict[str, Any]:
    return {
        "name": one.name,
        "downloads": one.downloads,
        "likes": one.likes,
        "updated": one.updated.isoformat() if one.updated else None,
        "gated": one.is_gated,
        "architecture": one.architecture,
        "parameters": one.parameters,
        "variants": [
            {"name": variant.name, "quantization": variant.quantization or None, "bytes": variant.n_bytes}
            for variant in offered(one.variants)
        ],
    }
