"""Entry point of the command: interrupted while Python still loads the program, it ends as quietly as later."""

from __future__ import annotations

import sys


def main() -> None:
    """Load and run the command line."""
    try:
        from app.cli import main as run  # noqa: PLC0415 - loading takes long enough to be interrupted
    except KeyboardInterrupt:
        sys.exit(130)
    run()
