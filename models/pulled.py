"""A pulled model's place in the catalogue: its name, its source, and whether it is there already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from models.catalogue import Catalogue, InstalledModel, Origin
from models.hub import RemoteRepository
from models.hub_cache import is_copy_of
from models.names import safe_name
from models.variants import Variant

_SUFFIX = re.compile(r"[-_.]gguf$", re.IGNORECASE)


def source_of(repository: RemoteRepository, variant: Variant) -> str:
    """What the user types to pull exactly this again: "user/repo:Q4_K_M"."""
    return str(repository.reference._replace(variant=variant.name))


def name_of(repository: RemoteRepository, variant: Variant) -> str:
    """Repository and quantization, "Qwen3-4B-Q4_K_M", or the file's own name where that would not tell it apart."""
    if variant.name != variant.quantization:
        return safe_name(variant.stem)
    return safe_name(f"{_SUFFIX.sub('', repository.name.split('/')[-1])}-{variant.quantization}")


def installed(catalogue: Catalogue, source: str) -> InstalledModel | None:
    """The catalogue's entry of that source. Raises CatalogueError."""
    models = (model for model in catalogue.models() if model.origin is Origin.PULLED)
    return next((model for model in models if model.source.lower() == source.lower()), None)


def is_current(model: InstalledModel, repository: RemoteRepository, variant: Variant) -> bool:
    """Whether the files of an installed model are there, and are what the hub has now."""
    return len(model.files) == len(variant.files) and all(
        is_copy_of(path, file, repository.commit) for path, file in zip(model.files, variant.files, strict=True)
    )


def install(
    catalogue: Catalogue, repository: RemoteRepository, variant: Variant, paths: Sequence[Path]
) -> InstalledModel:
    """Enter downloaded files; an earlier version's entry is replaced and its name kept. Raises CatalogueError."""
    source = source_of(repository, variant)
    return catalogue.add(name_of(repository, variant), paths, Origin.PULLED, source)
