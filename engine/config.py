"""What the user may set about an engine."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class EngineKind(enum.StrEnum):
    """Which engine runs the model: ours, or llama.cpp's own cache as the baseline."""

    PAGED = "paged"
    CONTIGUOUS = "contiguous"


class KvType(enum.StrEnum):
    """Number format of keys and values, by ggml's names."""

    F16 = "f16"
    Q8_0 = "q8_0"


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine; None leaves the choice to Octavo.

    kind: None is the paged engine, or the contiguous one where the paged engine has no graph for the model.
    context: tokens one sequence can hold. threads: CPU threads. device: a name listed by engine/devices.py,
    or the address HOST:PORT of a ggml RPC server. kv_type: of the keys, and of the values where the cache can.
    tuning_file: where the settings that fit this machine are remembered; None uses defaults and measures nothing.
    retune: measure anew, and take more time for it, whatever the file says. flash: llama.cpp's flash attention in the
    contiguous engine, None is llama.cpp's choice. speculate: let the paged engine verify draft tokens.
    state_cache_bytes: most bytes of other prompts' states that the contiguous engine keeps, 0 for none.
    """

    kind: EngineKind | None = None
    context: int | None = None
    threads: int | None = None
    device: str | None = None
    kv_type: KvType = KvType.F16
    tuning_file: str | None = None
    retune: bool = False
    flash: bool | None = None
    speculate: bool = True
    state_cache_bytes: int = 0
