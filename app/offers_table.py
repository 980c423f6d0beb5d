"""The table of a repository's quantizations that `octavo pull` shows, and the same as JSON."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from app.free_memory import free_memory
from app.tables import Column, write_table
from app.terminal import write_text
from engine.units import format_bytes, short_count
from models.hub.offers import Offer, Offers
from models.hub.repository import RemoteRepository


def write_offers(remote: RemoteRepository, offers: Offers, installed: Container[str]) -> None:
    """installed: names of the variants that are in the catalogue. Raises OctavoError."""
    parameters = f", {short_count(remote.parameters)} parameters" if remote.parameters else ""
    gated = " (gated: its owner must let you in)" if remote.is_gated else ""
    write_text(f"{remote.name}{parameters}{gated}\n\n")
    columns = (
        Column("#", is_number=True),
        Column("quantization", is_key=True),
        Column("size", is_number=True),
        Column("bpw", is_number=True, is_spare=True),
        Column("memory", is_number=True),
        Column("fit"),
        Column(""),
    )
    rows = [
        (
            str(number),
            offer.variant.name,
            format_bytes(offer.variant.n_bytes),
            f"{offer.bits_per_weight:.2f}" if offer.bits_per_weight else "",
            format_bytes(offer.needed),
            str(offer.fit),
            _remark(offer, offers, installed),
        )
        for number, offer in enumerate(offers.offers, start=1)
    ]
    write_table(columns, rows)
    write_text(f"\n{_footnote(offers)}\n")


def offers_as_dict(remote: RemoteRepository, offers: Offers) -> dict[str, Any]:
    """The object that `--list --json` prints."""
    return {
        "repository": remote.name,
        "commit": remote.commit,
        "gated": remote.is_gated,
        "parameters": remote.parameters,
        "context": offers.context,
        "kv_included": offers.has_kv,
        "memory_free": offers.machine.available,
        "gpu_free": offers.machine.gpu_free,
        "variants": [
            {
                "name": offer.variant.name,
                "files": [file.name for file in offer.variant.files],
                "bytes": offer.variant.n_bytes,
                "bits_per_weight": round(offer.bits_per_weight, 3) if offer.bits_per_weight else None,
                "needed_bytes": offer.needed,
                "fit": str(offer.fit),
                "recommended": offer is offers.recommended,
            }
            for offer in offers.offers
        ],
    }


def _remark(offer: Offer, offers: Offers, installed: Container[str]) -> str:
    remarks = ["recommended"] if offer is offers.recommended else []
    if offer.variant.name in installed:
        remarks.append("installed")
    if offer.variant.is_obsolete:
        remarks.append("no longer read by ggml")
    return ", ".join(remarks)


def _footnote(offers: Offers) -> str:
    free = free_memory(offers.machine)
    if not offers.has_kv:
        return f"bpw: bits per weight. Memory is for the weights alone, as the size of the KV cache is unknown; {free}."
    return f"bpw: bits per weight. Memory is for weights and {offers.context:,} tokens of context; {free}."
