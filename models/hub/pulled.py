"""A pulled model's place in the catalogue: its name, its source, and whether it is there already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from models.catalogue import Catalogue, InstalledModel, Origin
from models.hub.cache import is_copy_of
from models.hub.repository import RemoteRepository
from models.hub.variants import Variant
from models.names import name_in_repository, safe_name


def source_of(repository: RemoteRepository, variant: Variant) -> str:
    """What the user types to pull exactly this again: "user/repo:Q4_K_M"."""
    return str(repository.reference._replace(variant=variant.name))


def name_of(repository: str, variant: Variant) -> str:
    """Repository and quantization, "Qwen3-4B-Q4_K_M", or the file's own name where that would not tell it apart."""
    if variant.name != variant.quantization:
        return safe_name(variant.stem)
    return name_in_repository(repository, variant.quantization)


def is_current(model: InstalledModel, repository: RemoteRepository, variant: Variant) -> bool:
    """Whether the files of an installed model are there, and are what the hub has now."""
    return len(model.files) == len(variant.files) and all(
        is_copy_of(path, file, repository.commit) for path, file in zip(model.files, variant.files, strict=True)
    )


def install(
    catalogue: Catalogue, repository: RemoteRepository, variant: Variant, paths: Sequence[Path]
) -> InstalledModel:
    """Enter downloaded files; an earlier version's entry is replaced and its name kept. Raises CatalogueError."""
    name = name_of(repository.name, variant)
    return catalogue.add(name, paths, Origin.PULLED, source_of(repository, variant))
