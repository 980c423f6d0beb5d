"""The user's own editor, for a text that is longer than the composer is comfortable with."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.chat.errors import EditorError
from engine.printable import quoted

_USUAL = ("notepad",) if sys.platform == "win32" else ("nano", "vim", "vi")
"""What is tried where neither $VISUAL nor $EDITOR says anything."""


def editor_command() -> list[str]:
    """Program and arguments. Raises EditorError."""
    for variable in ("VISUAL", "EDITOR"):
        value = os.environ.get(variable, "").strip()
        if value:
            try:
                command = shlex.split(value)
            except ValueError:
                command = []
            if not command or shutil.which(command[0]) is None:
                raise EditorError(
                    f"There is no editor {quoted(value)}, which ${variable} names: set it to one that is there."
                )
            return command
    for name in _USUAL:
        if shutil.which(name):
            return [name]
    raise EditorError("No editor was found: set $VISUAL or $EDITOR to one.")


def edited(text: str, command: Sequence[str]) -> str:
    """Let the user edit a text in a program that takes the terminal; returns it as it is saved. Raises EditorError.

    The file is readable by its owner alone, and removed in any case. Line ends that an editor adds at the end are left
    out.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix="octavo-"
        ) as folder:  # 0700: what the editor writes beside it is private
            path = Path(folder) / "prompt.md"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="replace", newline="") as stream:
                stream.write(text)
            with _interrupts_left_to_it():
                code = subprocess.run([*command, str(path)], check=False).returncode
            if code != 0:
                raise EditorError(
                    f"The editor {quoted(command[0])} ended with code {code}: your text is as it was before."
                )
            result = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise EditorError("The editor saved something other than UTF-8 text: your text is as it was before.") from None
    except OSError as error:
        raise EditorError(
            f"The editor {quoted(command[0])} could not be used ({error.strerror}): your text is as it was before."
        ) from None
    return result.rstrip("\n")


@contextlib.contextmanager
def _interrupts_left_to_it() -> Iterator[None]:
    """Ctrl-C is meant for the editor. A handler that does nothing, unlike SIG_IGN, is not inherited by it.

    The event loop hears of signals by a descriptor, whatever the handler: it would carry them out afterwards.
    """
    usual = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: None)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, usual)
