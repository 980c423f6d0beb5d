"""Which engine runs a model file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.config import EngineConfig, EngineKind
from engine.contiguous import ContiguousEngine
from engine.errors import UnsupportedModel
from engine.interface import Engine
from engine.paged import PagedEngine


class LoadedEngine(NamedTuple):
    """An engine, and a sentence for the user when it is not the one that was expected."""

    engine: Engine
    notice: str | None


def load_engine(path: str, config: EngineConfig, progress: Callable[[float], None]) -> LoadedEngine:
    """Load the model file at `path`; `progress` receives the fraction that is done, from 0 to 1.

    Falls back to the contiguous engine when the paged one has no graph for the model and the
    user did not ask for it by name. Raises ModelFileError, UnsupportedModel, MemoryLimitError or DeviceError.
    """
    if config.kind == EngineKind.CONTIGUOUS:
        return LoadedEngine(ContiguousEngine(path, config, progress), None)
    try:
        return LoadedEngine(PagedEngine(path, config, progress), None)
    except UnsupportedModel as reason:
        if config.kind == EngineKind.PAGED:
            raise
        notice = f"{reason} Using the contiguous engine."
        return LoadedEngine(ContiguousEngine(path, config, progress), notice)
