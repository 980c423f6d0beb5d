"""Runs a Textual app in the terminal, which is as before when the app has ended in whatever way but by SIGKILL."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from textual.app import App

_GC_THRESHOLDS = (20_000, 10, 10)
"""Drawing makes thousands of objects that do not stay: Python's own (700, 10, 10) look through them too often."""


def run(app: App[Any], let_go: Callable[[], object]) -> int:
    """Run the app to its end and return the exit code.

    let_go: gives back what the app holds; called when the terminal is gone, and nothing else will be.
    """
    gc.set_threshold(*_GC_THRESHOLDS)
    with _only_the_app_writes():
        asyncio.run(_run(app, let_go))
    return app.return_code or 0


async def _run(app: App[Any], let_go: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C is a key; this is another program's wish
            loop.add_signal_handler(number, partial(app.exit, return_code=128 + number))
        loop.add_signal_handler(signal.SIGHUP, _leave_at_once, let_go)
    await app.run_async()


def _leave_at_once(let_go: Callable[[], object]) -> None:
    """The terminal is gone: nothing can be drawn any more, and Textual would wait for it."""
    let_go()
    os._exit(128 + signal.SIGHUP)


@contextlib.contextmanager
def _only_the_app_writes() -> Iterator[None]:
    """Keep what libraries write to standard error away from the screen, which Textual draws there.

    Textual takes `sys.__stderr__`, so that gets a descriptor of its own, and descriptor 2 leads nowhere meanwhile.
    """
    usual, usual_original = sys.stderr, sys.__stderr__
    usual.flush()
    screen = os.fdopen(os.dup(2), "w", encoding=usual.encoding, errors="replace")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    sys.stderr = sys.__stderr__ = screen  # type: ignore[misc]
    try:
        yield
    finally:
        screen.flush()
        os.dup2(screen.fileno(), 2)
        sys.stderr, sys.__stderr__ = usual, usual_original  # type: ignore[misc]
        screen.close()
