"""Which engine runs a model file."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.config import EngineConfig, EngineKind, KvType
from engine.contiguous import ContiguousEngine
from engine.errors import UnsupportedModel
from engine.interface import Engine
from engine.paged import PagedEngine
from engine.sequence import KvStats
from engine.tuning import TuningReport


class LoadedEngine(NamedTuple):
    """An engine, and what the user should know about the choice: which engine, which context, which KV types.

    tuning: what was measured on the way, None if nothing was.
    """

    engine: Engine
    notice: str | None
    tuning: TuningReport | None


def load_engine(path: str, config: EngineConfig, progress: Callable[[float], None]) -> LoadedEngine:
    """Load the model file at `path`; `progress` receives the fraction that is done, from 0 to 1.

    Falls back to the contiguous engine when the paged one has no graph for the model and the
    user did not ask for it by name.
    Raises ModelFileError, UnsupportedModel, UnsupportedKvType, MemoryLimitError or DeviceError.
    """
    notices = []
    engine: Engine
    try:
        if config.kind == EngineKind.CONTIGUOUS:
            engine = ContiguousEngine(path, config, progress, flash=config.flash)
        else:
            engine = PagedEngine(path, config, progress, speculate=config.speculate)
    except UnsupportedModel as reason:
        if config.kind is not None:
            raise
        notices.append(f"{reason} Using the contiguous engine.")
        engine = ContiguousEngine(path, config, progress)
    if config.kv_type is not KvType.F16:
        notices.append(_stored(engine.kv_stats()))
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
    tuning = engine.tuning_report if isinstance(engine, PagedEngine) else None
    return LoadedEngine(engine, " ".join(notices) or None, tuning)


def _stored(kv: KvStats) -> str:
    """A sentence on what became of a number format that the user asked for."""
    if not kv.block_bytes:
        return "This model has no keys and values to store: --kv-type changes nothing."
    if kv.type_k == kv.type_v:
        return f"Keys and values are stored as {kv.type_k}."
    return (
        f"Keys are stored as {kv.type_k}, values as {kv.type_v}: on the CPU they lie transposed, and a token's values "
        f"do not share a block."
    )
