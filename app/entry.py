"""Entry point of the command: interrupted while Python still loads the program, it ends as quietly as later."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Load and run the command line."""
    try:
        from app.cli import main as run  # noqa: PLC0415 - loading takes long enough to be interrupted
    except KeyboardInterrupt:
        sys.exit(130)
    try:
        run()
    finally:
        # What is left is Python's own end, whose traceback nobody needs. An ignored signal stays ignored.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
