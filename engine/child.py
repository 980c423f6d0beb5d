"""Processes of our own that run native code for us: how they start, how they notice our end, and what ended them.

A failed assertion in native code ends such a process and not this one. The connection to it is its lifeline.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any

_LOG_LINES = 20
"""Lines of a dead process's log that are kept."""


def start_child(module: str, descriptor: int, log: IO[bytes], *, keep: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Start `main(descriptor)` of a module around one end of a connection.

    Same interpreter and same import path as this process, whatever the current folder contains. A session of its
    own keeps Ctrl-C in the terminal away from it, and what native code prints goes to `log`. keep: more descriptors
    that it holds open for as long as it lives. Raises OSError.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main({descriptor})"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[descriptor, *keep],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def prepare_child(connection: Connection[Any, Any], take: Callable[[Any], object]) -> None:
    """In the child, before native code is loaded: give `take` what the parent sends, on a thread of its own.

    When the parent is gone, the process ends at once, in the middle of whatever it does.
    """
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed assertion would start a debugger to print a trace
    threading.Thread(target=_listen, args=(connection, take), name="listener", daemon=True).start()


def _listen(connection: Connection[Any, Any], take: Callable[[Any], object]) -> None:
    try:
        while True:
            take(connection.recv())
    except (EOFError, OSError):
        os._exit(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)


def last_lines(log: IO[bytes]) -> str:
    """The end of what a dead process has printed."""
    log.seek(0)
    return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-_LOG_LINES:])


def ending(code: int, *, while_loading: bool = False) -> str:
    """What became of a process that ended with `code` (below 0: by that signal), and the likely cause.

    It goes on from "The process". while_loading: whether it was reading the model file.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    if name == "SIGKILL":
        return f"was ended by {name}, perhaps because memory ran out"
    if name == "SIGBUS":  # mapped pages that are no longer in the file
        return f"was ended by {name}, perhaps because the model file was changed while it was in use"
    if while_loading:
        return f"was ended by {name}, perhaps because the model file is damaged"
    return f"was ended by {name}"
