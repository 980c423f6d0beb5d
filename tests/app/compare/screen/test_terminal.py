"""`octavo compare` on a terminal: the screen opens, real engines run, and the summary stays when it has closed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.command import ROOT, environment
from tests.tiny_gguf import CHATML, write_tiny

LEFT = b"\x1b[?1049l"
"""What a terminal gets when an app leaves its full screen."""


class Terminal:
    """The command, which believes that somebody looks."""

    def __init__(self, *arguments: str) -> None:
        self.screen = b""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.chdir(ROOT)
            os.execve(sys.executable, [sys.executable, "-m", "app", *arguments], environment({"TERM": "xterm"}))

    def read_until(self, text: bytes) -> None:
        while text not in self.screen:
            piece = os.read(self._terminal, 4096)
            assert piece, self.screen.decode(errors="replace")
            self.screen += piece

    def press(self, key: str) -> None:
        os.write(self._terminal, key.encode())

    def end(self) -> tuple[str, int]:
        """What stays on the terminal, and the exit code."""
        with contextlib.suppress(OSError):  # Linux's way to say that the other side is closed
            while piece := os.read(self._terminal, 4096):
                self.screen += piece
        os.close(self._terminal)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.screen.partition(LEFT)[2].decode(), code


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_tiny(path, tokenizer="gpt2", context=8192, chat_template=CHATML)


def test_to_the_end(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    arguments = ("--only", "raw", "--repeat", "1", "--context", "256", "--device", "CPU", "--save", str(file))
    terminal = Terminal("compare", str(tiny), *arguments)
    terminal.read_until(b"Done. Arrows scroll")
    terminal.press("q")
    text, code = terminal.end()
    assert code == 0
    assert "Raw speed, as the engine tells" in text
    assert "tg64 @ d0" in text
    record = json.loads(file.read_text())
    assert record["is_complete"]
    assert record["errors"] == []
    assert record["conclusion"] in " ".join(text.split())


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (lambda terminal: terminal.press("\x03"), 130),
        (lambda terminal: os.kill(terminal.pid, signal.SIGTERM), 143),
    ],
    ids=["ctrl-c", "terminated"],
)
def test_left_early(tiny: Path, leave: Callable[[Terminal], None], code: int) -> None:
    terminal = Terminal("compare", str(tiny), "--only", "session", "--threads", "1", "--device", "CPU")
    terminal.read_until(b"turn 3")
    leave(terminal)
    text, left_with = terminal.end()
    assert left_with == code
    assert "turn 2" in text
    assert "It was stopped before its end" in text
    assert "Traceback" not in text


def test_what_cannot_be_measured_is_said_on_the_terminal(tiny: Path) -> None:
    text, code = Terminal("compare", str(tiny), "--only", "session", "--context", "512").end()
    assert code == 1
    assert "it needs a window of 1,536 tokens, and this one has 512" in " ".join(text.split())
    assert "Traceback" not in text


def test_a_form_needs_no_screen(tiny: Path) -> None:
    arguments = ("--only", "raw", "--repeat", "1", "--context", "256", "--device", "CPU", "--csv")
    terminal = Terminal("compare", str(tiny), *arguments)
    terminal.end()
    assert LEFT not in terminal.screen
    assert b"part,test,lane" in terminal.screen
