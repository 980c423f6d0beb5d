"""Standard output, standard error and signals, as a terminal user expects them.

Standard output carries answers and nothing else. No control character of a model's text reaches it, and
there are no colours, so NO_COLOR has nothing to turn off.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

import click

from engine.errors import OctavoError
from engine.printable import json_text, one_line, printable


class Interrupted(NamedTuple):
    """The user, or whoever runs this process, wants it to end."""

    signal: int

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that was ended by this signal."""
        return 128 + self.signal


@contextlib.contextmanager
def interrupts_to(deliver: Callable[[Interrupted], object]) -> Iterator[None]:
    """Turn the first Ctrl-C, SIGTERM or closing of the terminal inside the block into a message.

    A second one acts as it always does. A message arrives in its turn among other events, while KeyboardInterrupt could
    strike anywhere.
    """
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup(1) sets it
        signals.append(signal.SIGHUP)
    usual = {number: signal.getsignal(number) for number in signals}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        restore()
        deliver(Interrupted(number))

    for number in signals:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()


def write_text(text: str) -> None:
    """A piece of an answer to standard output, at once. Raises what `write_line` raises."""
    _write(printable(text))


def write_line(line: str) -> None:
    """A line of our own making, such as JSON, to standard output, at once.

    Raises BrokenPipeError when nobody reads any more, and OctavoError when it cannot be written, as on a full disk.
    """
    _write(line + "\n")


def write_json(value: Any) -> None:
    """One line of JSON to standard output, at once; characters that a terminal acts on are escaped.

    Raises what `write_line` raises.
    """
    write_line(json_text(value))


def _write(text: str) -> None:
    if sys.stdout is None:
        raise OctavoError("The answer cannot be written: standard output is closed.")
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OctavoError(f"The answer cannot be written to standard output: {error.strerror}.") from error


def _say(text: str, *, newline: bool = True) -> None:
    """To standard error. A failure there is one that nobody can be told of, and the answer does not depend on it."""
    with contextlib.suppress(OSError):
        click.echo(text, nl=newline, err=True)


def open_standard_files() -> None:
    """Put the null device where the caller closed one of descriptors 0 to 2: our own files would get its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def discard_unwritten() -> None:
    """Drop what cannot be written: Python would try again at its exit, complain, and change the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def has_terminal() -> bool:
    """Whether all three standard files are a terminal that can move its cursor."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return False
    return sys.platform == "win32" or os.environ.get("TERM", "dumb") != "dumb"


def tolerate_encoding() -> None:
    """Let a terminal that cannot show a character show a question mark, where Python would raise an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class StatusLine:
    """A line on standard error that is overwritten in place while something takes time.

    Shown only on a terminal. Any thread may call any method.
    """

    def __init__(self) -> None:
        self._enabled = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False
        self._lock = threading.Lock()

    def show(self, text: str) -> None:
        """Replace what the line says; what is too long for the terminal is cut, as a wrapped line would stay."""
        if self._enabled:
            with self._lock:
                _say(f"\r\x1b[K{one_line(text)[: _columns() - 1]}", newline=False)
                self._shown = True

    def clear(self) -> None:
        """Remove the line, before anything else is written."""
        with self._lock:
            if self._shown:
                _say("\r\x1b[K", newline=False)
                self._shown = False

    def note(self, text: str) -> None:
        """A line that stays, also where standard error is no terminal."""
        self.clear()
        _say(f"octavo: {one_line(text)}")


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def report(error: OctavoError) -> None:
    """The sentence of an error, and below it what a maintainer needs, on standard error."""
    _say(f"octavo: {one_line(str(error))}")
    for details in getattr(error, "__notes__", ()):
        _say(printable(details).rstrip())
