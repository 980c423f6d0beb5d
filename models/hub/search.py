"""Repositories with GGUF files on the hub, found by words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from huggingface_hub import ModelInfo, constants, get_session, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers

from engine.errors import OctavoError
from models.hub.explained import explained
from models.hub.repository import TIMEOUT_S, files_of, model_info, patiently, positive
from models.hub.variants import Variant, variants_of
from models.parallel import in_parallel

_FIELDS = ("downloads", "likes", "lastModified", "gguf", "gated")


@dataclass(frozen=True)
class FoundRepository:
    """A repository that a search has found. variants: empty where the hub did not tell its files."""

    name: str
    downloads: int
    likes: int
    updated: datetime | None
    parameters: int | None
    architecture: str | None
    is_gated: bool
    variants: tuple[Variant, ...] = ()


def search(words: Sequence[str], limit: int) -> list[FoundRepository]:
    """The repositories with GGUF files whose names contain all `words`, most downloaded first. Raises HubError."""
    query = " ".join(words)
    with explained(query):
        found = patiently(lambda: _listing(query, limit))
    variants = in_parallel(_variants, [one.name for one in found])  # a listing has no sizes of files
    return [replace(one, variants=its) for one, its in zip(found, variants, strict=True)]


def _listing(query: str, limit: int) -> list[FoundRepository]:
    """What HfApi.list_models asks, but without its five attempts over 23 seconds where there is no network."""
    query_fields: dict[str, Any] = {"search": query, "filter": "gguf", "sort": "downloads", "limit": limit}
    query_fields["expand"] = _FIELDS
    address = f"{constants.ENDPOINT}/api/models"
    response = get_session().get(address, params=query_fields, headers=build_hf_headers(), timeout=TIMEOUT_S)
    hf_raise_for_status(response)
    return [_found(ModelInfo(**item)) for item in response.json()[:limit]]  # type: ignore[no-untyped-call]


def _found(info: ModelInfo) -> FoundRepository:
    gguf = info.gguf or {}
    architecture = gguf.get("architecture")
    return FoundRepository(
        info.id,
        positive(info.downloads) or 0,
        positive(info.likes) or 0,
        info.last_modified,
        positive(gguf.get("total")),
        architecture if isinstance(architecture, str) else None,
        bool(info.gated),
    )


def _variants(name: str) -> tuple[Variant, ...]:
    """Empty where the hub does not tell them: the search is worth showing without."""
    try:
        with explained(name):
            return patiently(lambda: tuple(variants_of(files_of(model_info(name)))))
    except OctavoError:
        return ()
