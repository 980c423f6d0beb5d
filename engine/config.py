"""What the user may set about an engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EngineKind(enum.StrEnum):
    """Which engine runs the model: ours, or llama.cpp's own cache as the baseline."""

    PAGED = "paged"
    CONTIGUOUS = "contiguous"


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine; None leaves the choice to Octavo.

    kind: None is the paged engine, or the contiguous one where the paged engine has no graph for the model.
    context: tokens one sequence can hold. threads: CPU threads. device: a name listed by engine/devices.py,
    or the address HOST:PORT of a ggml RPC server.
    """

    kind: EngineKind | None = None
    context: int | None = None
    threads: int | None = None
    device: str | None = None
