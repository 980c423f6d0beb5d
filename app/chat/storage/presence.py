"""Which instances of the app are running, as the operating system knows it.

Each holds the lock of a file of its own. The kernel lets go of it when the process ends in whatever way, so there is
no clock to compare and no process number that another program may have by now; a laptop that slept, a folder shared
between containers and a killed app are all told apart rightly.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Presence:
    """That this instance is running, until `close` or the end of the process."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError. No instance may call `remove_the_dead` at that moment."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.name = secrets.token_hex(8)
        self._folder = folder
        self._stream = (folder / self.name).open("xb", buffering=0)
        if sys.platform != "win32":
            fcntl.flock(self._stream, fcntl.LOCK_EX)

    def is_running(self, name: str) -> bool:
        """Whether the instance of that name, such as this one, runs."""
        path = self._folder / name
        if sys.platform == "win32":
            return not _is_removed(path)
        try:
            with path.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def remove_the_dead(self) -> None:
        """Remove the files of instances that were killed."""
        for name in os.listdir(self._folder):
            if not self.is_running(name):
                with contextlib.suppress(FileNotFoundError):
                    (self._folder / name).unlink()

    def close(self) -> None:
        """Let the others know that this instance ends."""
        self._stream.close()
        with contextlib.suppress(OSError):  # what is left is removed by the next instance
            (self._folder / self.name).unlink()


def _is_removed(path: Path) -> bool:
    """Remove a file on Windows, which refuses while another process has it open."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:
        return False
    return True
