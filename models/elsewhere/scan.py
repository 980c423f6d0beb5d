"""Models on this machine that other programs hold, ready to be installed without another download."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.errors import ModelFileError
from engine.printable import one_line
from models.catalogue import Catalogue, InstalledModel
from models.elsewhere.holdings import Holding
from models.errors import NotALanguageModel
from models.importing import Candidate, check_language_model, installed_model


@dataclass(frozen=True)
class FoundModel:
    """A language model that was found. holdings: every place and name of it, the best first. n_bytes: of all files.

    installed: its entry in the catalogue, if it has one.
    """

    candidate: Candidate
    holdings: tuple[Holding, ...]
    n_bytes: int
    installed: InstalledModel | None

    @property
    def programs(self) -> tuple[str, ...]:
        """Programs that hold it."""
        return tuple(dict.fromkeys(holding.program for holding in self.holdings))

    @property
    def labels(self) -> tuple[str, ...]:
        """What they call it."""
        return tuple(dict.fromkeys(holding.label for holding in self.holdings))


class Findings(NamedTuple):
    """Models by program and name, and what could not be read on the way: damaged files, folders of other users."""

    models: tuple[FoundModel, ...]
    unreadable: tuple[Path, ...]


def scan(holdings: Iterable[Holding], unreadable: list[Path], catalogue: Catalogue) -> Findings:
    """Check what programs hold: one entry for one file, and none for adapters, projectors and the like.

    unreadable: what could not be read so far; used when `holdings` is at its end. Raises CatalogueError.
    """
    by_file: dict[tuple[int, int], list[Holding]] = {}
    for holding in holdings:
        try:
            status = os.stat(holding.path)
        except OSError:
            unreadable.append(holding.path)
        else:
            by_file.setdefault((status.st_dev, status.st_ino), []).append(holding)
    installed = catalogue.models()
    models = []
    for same in by_file.values():
        same.sort(key=_says_little)
        try:
            files = check_language_model(same[0].path)
            models.append(_found(files, tuple(same), installed))
        except NotALanguageModel:
            continue
        except (ModelFileError, OSError):
            unreadable.append(same[0].path)
    return Findings(tuple(models), tuple(dict.fromkeys(unreadable)))


def _found(files: tuple[Path, ...], holdings: tuple[Holding, ...], installed: Iterable[InstalledModel]) -> FoundModel:
    best = holdings[0]
    candidate = Candidate(files, best.name, best.origin, best.source or one_line(str(files[0])))
    return FoundModel(candidate, holdings, candidate.n_bytes, installed_model(files, installed))


def _says_little(holding: Holding) -> bool:
    """Whether a tag of Ollama does not tell which size or quantization it is, as others of the same file may."""
    return holding.label.endswith(":latest")
