"""The command on a terminal where somebody answers its questions."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Mapping, Sequence

from tests.app.command import ROOT, environment


def on_a_terminal(
    arguments: Sequence[str],
    question: str = "",
    answers: Sequence[str] = (),
    *,
    variables: Mapping[str, str] | None = None,
    columns: int = 200,
) -> tuple[str, int]:
    """Run the command; returns what the screen showed, and the exit code.

    answers: one for each time that `question` is asked, which ends in a colon and a blank; "\\x03" is Ctrl-C. All are
    followed by Enter: Ctrl-C strikes a Python that is about to wait for a line, and would not see it before.
    """
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.chdir(ROOT)
        ours = {name: value for name, value in environment(variables).items() if name != "COLUMNS"}
        os.execve(sys.executable, [sys.executable, "-m", "app", *arguments], ours | {"TERM": "xterm"})
    screen, waiting = b"", list(answers)
    with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
        while piece := os.read(terminal, 4096):
            screen += piece
            is_asked = screen.count(question.encode()) > len(answers) - len(waiting) and screen.endswith(b": ")
            if waiting and is_asked:
                os.write(terminal, waiting.pop(0).encode() + b"\n")
    os.close(terminal)
    return screen.decode(), os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
