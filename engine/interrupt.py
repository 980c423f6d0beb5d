"""Stops a computation from another thread, at the next node of its graph."""

from __future__ import annotations

import ctypes
import sys

_libc = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)


class StepInterrupted(Exception):
    """A computation was stopped and has no result. The engine that ran it catches this; users never see it."""


class Interrupt:
    """A byte that ggml looks at after every node.

    ggml asks an abort callback, `bool (*)(void *)`. A Python function would wait for the interpreter's lock each time.
    C's strlen does not, and of a text of one or no character it says 1 or 0: stop, or go on.

    callback, data: addresses for ggml.
    """

    def __init__(self) -> None:
        self._text = ctypes.create_string_buffer(2)
        self.callback = ctypes.cast(_libc.strlen, ctypes.c_void_p).value or 0
        self.data = ctypes.addressof(self._text)

    def set(self) -> None:
        """Stop the computation that runs, or else the next one. Any thread may call this."""
        self._text[0] = b"!"

    def clear(self) -> None:
        """Let computations run."""
        self._text[0] = b"\0"
