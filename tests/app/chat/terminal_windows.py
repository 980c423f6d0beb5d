"""Windows with a shell in them: of tmux where it is installed, and on a pty, which pyte reads as an emulator would."""

from __future__ import annotations

import codecs
import contextlib
import copy
import fcntl
import os
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import pyte

from tests.app.command import ROOT

_SHELL = ["/bin/sh", "-i"]  # as two words tmux starts it itself, and not by another shell
_PASTED = "\x1b[200~", "\x1b[201~"
_KEYS = {
    **{"Enter": "\r", "BSpace": "\x7f", "Escape": "\x1b"},
    **{"F1": "\x1bOP", "F2": "\x1bOQ", "F5": "\x1b[15~"},
    **{f"C-{letter}": chr(ord(letter) - ord("a") + 1) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
"""What a terminal sends for the keys that tmux calls so."""


class Modes(NamedTuple):
    """What a program can switch in a terminal, and has to switch back."""

    is_alternate: bool
    has_cursor: bool
    reports_mouse: bool


USUAL = Modes(is_alternate=False, has_cursor=True, reports_mouse=False)


class Window(Protocol):
    """A window with a shell. shell: its process. tty: descriptor of its terminal, for termios."""

    shell: int
    tty: int

    def type(self, text: str) -> None:
        """Write characters."""

    def press(self, key: str) -> None:
        """Press a key, by its name in tmux."""

    def paste(self, text: str) -> None:
        """Paste as a terminal does: in brackets if the program has asked for them, with carriage returns."""

    def lines(self) -> list[str]:
        """What is on the screen."""

    def modes(self) -> Modes:
        """As the program has set them."""

    def resize(self, columns: int, lines: int) -> None:
        """As when the user drags the corner of the window."""

    def hang_up(self) -> None:
        """Close the window."""


class TmuxWindow:
    """A window of a tmux server of its own, which ends with the control client that this process has."""

    def __init__(self, variables: Mapping[str, str], columns: int, lines: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="octavo-tmux-")
        self._tmux = ["tmux", "-S", f"{self._folder.name}/socket", "-f", os.devnull]
        self._client = subprocess.Popen(
            [*self._tmux, "-C", "new-session", "-x", str(columns), "-y", str(lines), "-c", str(ROOT), *_SHELL],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(variables),
        )
        assert self._client.stdout is not None
        self._client.stdout.readline()  # the session is there
        self._drain = threading.Thread(target=deque, args=(self._client.stdout, 0), daemon=True)
        self._drain.start()
        self._run("set-option", "-g", "destroy-unattached", "on")
        self._run("resize-window", "-x", str(columns), "-y", str(lines))
        pid, path = self._run("display-message", "-p", "#{pane_pid} #{pane_tty}").split()
        self.shell = int(pid)
        self.tty = os.open(path, os.O_RDWR | os.O_NOCTTY)

    def type(self, text: str) -> None:
        self._run("send-keys", "-l", "--", text)

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    def paste(self, text: str) -> None:
        path = Path(self._folder.name) / "pasted"
        path.write_text(text, encoding="utf-8")
        self._run("load-buffer", str(path))
        self._run("paste-buffer", "-p", "-d")

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._run("capture-pane", "-p").splitlines()]

    def modes(self) -> Modes:
        flags = self._run("display-message", "-p", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}").split()
        return Modes(*(flag == "1" for flag in flags))

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    def hang_up(self) -> None:
        if self.tty < 0:
            return
        os.close(self.tty)
        self.tty = -1
        assert self._client.stdin is not None
        self._client.stdin.close()
        self._client.wait(20)
        self._drain.join(20)
        self._folder.cleanup()

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], capture_output=True, check=True, timeout=20)
        return done.stdout.decode("utf-8", "replace")


class PtyWindow:
    """A pty; a thread lets pyte take in all that is written to it."""

    def __init__(self, variables: Mapping[str, str], columns: int, lines: int) -> None:
        self._screen = _Screen(columns, lines)
        self._stream = pyte.Stream(self._screen)
        self._lock = threading.Lock()
        self.tty, theirs = os.openpty()
        self.resize(columns, lines)
        self._process = subprocess.Popen(
            _SHELL,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=ROOT,
            env=dict(variables) | {"TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - it only calls the system
        )
        os.close(theirs)
        self.shell = self._process.pid
        self._end, self._ending = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, text: str) -> None:
        data = text.encode()
        while data:
            data = data[os.write(self.tty, data) :]

    def press(self, key: str) -> None:
        self.type(_KEYS[key])

    def paste(self, text: str) -> None:
        text = text.replace("\n", "\r")
        with self._lock:
            is_bracketed = 2004 << 5 in self._screen.mode
        self.type(text.join(_PASTED) if is_bracketed else text)

    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def modes(self) -> Modes:
        with self._lock:
            screen = self._screen
            return Modes(screen.is_alternate, not screen.cursor.hidden, 1000 << 5 in screen.mode)

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
        fcntl.ioctl(self.tty, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def hang_up(self) -> None:
        if self.tty < 0:
            return
        os.write(self._ending, b"!")
        self._reader.join(20)  # as long as it reads, the pty stays open
        for descriptor in (self.tty, self._end, self._ending):
            os.close(descriptor)
        self.tty = -1
        self._process.wait(20)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with contextlib.suppress(OSError):  # the shell has ended
            while self._end not in select.select([self.tty, self._end], [], [])[0]:
                data = os.read(self.tty, 1 << 16).replace(_KITTY_END, b"")
                with self._lock:
                    self._stream.feed(decoder.decode(data))


_KITTY_END = b"\x1b[<u"
"""The end of the Kitty keyboard protocol, of which pyte would show the u."""


class _Screen(pyte.Screen):
    """With the alternate screen, which pyte does not have."""

    is_alternate = False

    def set_mode(self, *modes: int, **kwargs: bool) -> None:
        super().set_mode(*modes, **kwargs)
        if 1049 in modes and not self.is_alternate:
            self._before = copy.copy(self.cursor)
            self._switch(pyte.Screen(self.columns, self.lines).buffer)

    def reset_mode(self, *modes: int, **kwargs: bool) -> None:
        super().reset_mode(*modes, **kwargs)
        if 1049 in modes and self.is_alternate:
            self._switch(self._main)
            self.cursor = self._before

    def _switch(self, buffer: object) -> None:
        self._main, self.buffer = self.buffer, buffer
        self.is_alternate = not self.is_alternate


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def kinds() -> list[type[TmuxWindow] | type[PtyWindow]]:
    """The kinds of windows that this machine has, the most real one first."""
    return [TmuxWindow, PtyWindow] if shutil.which("tmux") else [PtyWindow]
