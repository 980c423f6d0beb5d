"""The native libraries inside llama-cpp-python: version checked, opened once, and quiet.

Everything native goes through `llama` (llama.cpp's functions, declared by llama-cpp-python) or
`library` (the same handle, on which engine/ggml.py declares ggml's functions). Opening one of the
.so files by path instead would load a second copy with its own backend registry.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterator, Sequence

from engine.errors import UnsupportedLibrary
from engine.printable import one_line

# Threads of GNU's OpenMP wait by spinning. With the default count a step takes up to 500 times as long when other
# programs are busy; this one costs nothing measurable when they are not. It counts only if set before loading.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import llama_cpp

TESTED_VERSION = "0.3.36"
"""llama.cpp's C structures change without notice, so exactly one version is accepted."""

if llama_cpp.__version__ != TESTED_VERSION:
    raise UnsupportedLibrary(
        f"Octavo was tested with llama-cpp-python {TESTED_VERSION}, but {llama_cpp.__version__} is installed: "
        f"run 'pip install llama-cpp-python=={TESTED_VERSION}'."
    )

llama = llama_cpp.llama_cpp
library = llama._lib

LOG_INFO, LOG_WARN, LOG_ERROR = 2, 3, 4
_LOG_CONTINUE = 5
_recent: collections.deque[str] = collections.deque(maxlen=200)
_level = 0
_lowest = LOG_WARN


@llama.llama_log_callback  # type: ignore[untyped-decorator]
def _on_log(level: int, text: bytes, _user_data: object) -> None:
    global _level  # noqa: PLW0603 - a continued line has the level of the line it continues
    if level != _LOG_CONTINUE:
        _level = level
    if _level >= _lowest:
        _recent.append(text.decode("utf-8", "replace").strip())


llama.llama_log_set(_on_log, ctypes.c_void_p(0))
library.ggml_log_set(_on_log, ctypes.c_void_p(0))
llama.llama_backend_init()


@contextlib.contextmanager
def captured_log(lowest: int = LOG_WARN) -> Iterator[list[str]]:
    """Collect what native code logs inside the block at level `lowest` or above, to explain a failure.

    The list is filled when the block ends.
    """
    global _lowest  # noqa: PLW0603 - the callback has no other way to learn it
    _recent.clear()
    _lowest = lowest
    lines: list[str] = []
    try:
        yield lines
    finally:
        _lowest = LOG_WARN
        lines.extend(_recent)


@contextlib.contextmanager
def log_to(take: Callable[[int, str], object]) -> Iterator[None]:
    """Inside the block, give `take` all that native code logs, whatever the level: level and text, in pieces of lines.

    It is called on whichever thread logs, in the middle of native code, and must not raise.
    """

    @llama.llama_log_callback  # type: ignore[untyped-decorator]
    def on_log(level: int, text: bytes, _user_data: object) -> None:
        take(level, text.decode("utf-8", "replace"))

    llama.llama_log_set(on_log, ctypes.c_void_p(0))
    try:
        yield
    finally:
        llama.llama_log_set(_on_log, ctypes.c_void_p(0))


_PREFIX = re.compile(r"(?:\w+: |error loading model[a-z ]*: )*")
"""Names of native functions before what a log line says."""


def reason_in(log: Sequence[str]) -> str:
    """The first line of a captured log, which later ones only repeat, in brackets for use within a sentence."""
    line = next((line for line in log if line), "")
    text = _PREFIX.sub("", line, count=1) or line
    return f" ({one_line(text).rstrip('.')})" if text else ""
