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
    """An engine, and what the user should know about the choice: which engine, or which context."""

    engine: Engine
    notice: str | None


def load_engine(path: str, config: EngineConfig, progress: Callable[[float], None]) -> LoadedEngine:
    """Load the model file at `path`; `progress` receives the fraction that is done, from 0 to 1.

    Falls back to the contiguous engine when the paged one has no graph for the model and the
    user did not ask for it by name. Raises ModelFileError, UnsupportedModel, MemoryLimitError or DeviceError.
    """
    notices = []
    engine: Engine
    try:
        if config.kind == EngineKind.CONTIGUOUS:
            engine = ContiguousEngine(path, config, progress)
        else:
            engine = PagedEngine(path, config, progress)
    except UnsupportedModel as reason:
        if config.kind is not None:
            raise
        notices.append(f"{reason} Using the contiguous engine.")
        engine = ContiguousEngine(path, config, progress)
    if engine.context > engine.context_train:
        notices.append(
            f"The context of {engine.context:,} tokens is longer than the {engine.context_train:,} that the model was "
            "trained for: it may lose the thread."
        )
    elif config.context is None and engine.context < engine.context_train:
        notices.append(
            f"The context is {engine.context:,} of the model's {engine.context_train:,} tokens: half of the free "
            "memory holds no more; --context asks for another."
        )
    return LoadedEngine(engine, " ".join(notices) or None)
