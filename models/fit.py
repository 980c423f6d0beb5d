"""Whether a model fits this machine: weights, KV cache and what a running engine takes besides, against free memory."""

from __future__ import annotations

import enum
from typing import NamedTuple

from engine.memory import available_memory

ADVICE_CONTEXT = 8192
"""Tokens of context that advice about a model counts with, where the model was trained on as many."""

OVERHEAD = 200 * 2**20
"""Bytes of both processes beside weights and KV cache: Python, libraries, graphs. Measured with `octavo run` and full
steps of 512 tokens on Linux: 88 MiB with the starter model, 95 MiB with a model of 1B; wider ones have wider graphs."""

_TIGHT = 0.8
"""Part of the free memory beyond which the rest of the machine would suffer."""


class Fit(enum.StrEnum):
    """What to tell about a model on this machine."""

    GPU = "fits on GPU"
    MEMORY = "fits in memory"
    TIGHT = "tight"
    TOO_LARGE = "too large"


class Machine(NamedTuple):
    """Free memory in bytes. available: to a program on the CPU. gpu_free: of the first GPU, 0 without one."""

    available: int
    gpu_free: int

    @classmethod
    def now(cls) -> Machine:
        """This machine, at this moment."""
        from engine.devices import list_devices  # noqa: PLC0415 - native code, which not every estimate needs

        free = (device.memory_free for device in list_devices() if device.kind == "gpu")
        return cls(available_memory(), next(free, 0))


class FitEstimate(NamedTuple):
    """needed: bytes of weights, KV cache and overhead."""

    fit: Fit
    needed: int


def advice_context(trained: int) -> int:
    """Tokens of context to count with for a model that was trained on `trained`; 0 is not known."""
    return min(trained, ADVICE_CONTEXT) if trained > 0 else ADVICE_CONTEXT


def estimate(n_bytes: int, kv_bytes_per_token: int, context: int, machine: Machine) -> FitEstimate:
    """How a model of `n_bytes` of weights fits with a context of so many tokens.

    It is for the GPU if it fits there as a whole: the paged engine does not split a model.
    """
    needed = n_bytes + kv_bytes_per_token * context + OVERHEAD
    if needed <= machine.gpu_free:
        return FitEstimate(Fit.GPU, needed)
    if needed > machine.available:
        return FitEstimate(Fit.TOO_LARGE, needed)
    return FitEstimate(Fit.TIGHT if needed > _TIGHT * machine.available else Fit.MEMORY, needed)
