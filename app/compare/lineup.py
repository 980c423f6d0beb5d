"""Which lanes there are, by the names that users give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from app.compare.batch_lane import contiguous_variants, paged_variants, window_for
from app.compare.endpoint import Endpoint
from app.compare.endpoint_lane import EndpointVariant
from app.compare.engine_lane import EngineVariant
from app.compare.lanes import BatchTest, BatchVariant, Lane, Lineup, Variant
from engine.config import EngineConfig, EngineKind
from engine.memory import available_memory
from models.fit import Machine, advice_context, estimate
from models.inspect import ModelSummary

CONTIGUOUS, RAM, PAGED, NO_LOOKUP = "contiguous", "contiguous+ram", "paged", "paged-no-lookup"
LANES = (CONTIGUOUS, RAM, PAGED, NO_LOOKUP)
DEFAULT_LANES = (CONTIGUOUS, PAGED)
"""The first is what the others are compared with."""

_MOST_STATES = 8 * 2**30
"""Bytes of other prompts' states, as llama-server keeps by itself, where a quarter of the free memory is more."""


def choose_context(requested: int | None, summary: ModelSummary) -> int:
    """The window of all lanes, which must not differ: as asked for, or what a chat needs and the model was trained on.

    The contiguous lanes reserve all of it.
    """
    return requested or advice_context(summary.context or 0)


def make_lineup(
    names: Sequence[str],
    endpoints: Sequence[Endpoint],
    path: Path,
    config: EngineConfig,
    summary: ModelSummary,
    batch: Sequence[BatchTest],
) -> Lineup:
    """The lanes of these names, from LANES, and then the servers. config.context is set. batch: the tests planned."""
    assert config.context is not None
    needed = _bytes_needed(summary, config.context)
    session = [Lane(name, _session_variants(name, path, config), needed) for name in names]
    session += [Lane(endpoint.server, (EndpointVariant(endpoint, path),)) for endpoint in endpoints]
    others = [name for name in names if name in (CONTIGUOUS, PAGED)]  # the rest would measure the same again
    raw = [Lane(name, _raw_variants(name, path, config), needed) for name in others]
    raw += [Lane(endpoint.server, (EndpointVariant(endpoint, path),)) for endpoint in endpoints]
    batch_needed = _bytes_needed(summary, window_for(batch)) if batch else 0
    batches = [Lane(name, _batch_variants(name, path, config, batch), batch_needed) for name in others]
    return Lineup(tuple(raw), tuple(batches) if batch else (), tuple(session))


def _bytes_needed(summary: ModelSummary, context: int) -> int:
    """By one engine, with the whole window: the paged one takes no more."""
    machine = Machine(available_memory(), 0)
    return estimate(summary.weight_bytes, summary.kv_bytes_per_token or 0, context, machine).needed


def _session_variants(name: str, path: Path, config: EngineConfig) -> tuple[Variant, ...]:
    if name in (PAGED, NO_LOOKUP):
        return (EngineVariant("", path, replace(config, kind=EngineKind.PAGED, speculate=name == PAGED)),)
    if name == RAM:
        config = replace(config, state_cache_bytes=min(_MOST_STATES, available_memory() // 4))
    return _flash_variants(path, config)


def _raw_variants(name: str, path: Path, config: EngineConfig) -> tuple[Variant, ...]:
    """Without the paged engine's prompt lookup, which would make a random text's repetitions look fast."""
    if name == PAGED:
        return (EngineVariant("", path, replace(config, kind=EngineKind.PAGED, speculate=False)),)
    return _flash_variants(path, config)


def _batch_variants(
    name: str, path: Path, config: EngineConfig, tests: Sequence[BatchTest]
) -> tuple[BatchVariant, ...]:
    if not tests:
        return ()
    return (paged_variants if name == PAGED else contiguous_variants)(path, config, tests)


def _flash_variants(path: Path, config: EngineConfig) -> tuple[Variant, ...]:
    """llama.cpp at its best: which of them is faster depends on the machine and the depth."""
    return tuple(
        EngineVariant(name, path, replace(config, kind=EngineKind.CONTIGUOUS, flash=flash))
        for name, flash in (("flash on", True), ("flash off", False))
    )
