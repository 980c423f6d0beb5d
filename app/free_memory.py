"""What is free on this machine, for people."""

from __future__ import annotations

from engine.units import format_bytes
from models.fit import Machine


def free_memory(machine: Machine) -> str:
    """A clause for the end of a sentence."""
    free = f"{format_bytes(machine.available)} of memory are free"
    return f"{free}, {format_bytes(machine.gpu_free)} on the GPU" if machine.gpu_free else free
