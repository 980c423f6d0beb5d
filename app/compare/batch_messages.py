"""What crosses the pipe to a process that decodes batches. It gets BatchLoad once, then BatchTests."""

from __future__ import annotations

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.errors import OctavoError


@dataclass(frozen=True)
class BatchLoad:
    """Which model, and how to run it.

    config: `context` is the tokens of all sequences together. n_sequences: the most that run together.
    unified: whether llama.cpp keeps them in one cache, or each in a share of it; the paged engine has no use for it.
    """

    path: str
    config: EngineConfig
    n_sequences: int
    unified: bool


@dataclass(frozen=True)
class BatchLoaded:
    """The model is ready."""


@dataclass(frozen=True)
class BatchTime:
    """Seconds of a test; see lanes.BatchVariant."""

    seconds: float


@dataclass(frozen=True)
class BatchFailed:
    """The model cannot be loaded, or a test not be done."""

    error: OctavoError
