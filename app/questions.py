"""Questions to whoever sits at the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

import click

_Answer = TypeVar("_Answer")


def can_ask() -> bool:
    """Whether somebody sees a question and can answer it."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def ask(question: str, meaning: Callable[[str], _Answer]) -> _Answer:
    """Ask until `meaning`, which raises click.UsageError, understands the answer; a bare Enter is "".

    Raises click.Abort after Ctrl-C.
    """
    with _ended_line():
        answer: _Answer = click.prompt(question, default="", show_default=False, value_proc=meaning)
        return answer


def confirm(question: str) -> bool:
    """Ask for yes or no, which is meant by a bare Enter. Raises click.Abort after Ctrl-C."""
    with _ended_line():
        return click.confirm(question)


@contextlib.contextmanager
def _ended_line() -> Iterator[None]:
    """The shell's prompt goes below a question that was not answered, and not behind it.

    Questions go to standard output: with standard error in its place, Python's `input` can lose a Ctrl-C.
    """
    try:
        yield
    except click.Abort:
        click.echo(err=True)
        raise
