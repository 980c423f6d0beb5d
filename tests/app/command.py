"""The real `octavo` command: in a process of its own, or in this one where that makes no difference."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from app.cli import main

ROOT = Path(__file__).parents[2]
COUNTING = "1 2 3 4 5 6 7 8 9 10 11 12"
"""Completed greedily and raw, the starter model counts on for as long as it may."""
_cache_folder = tempfile.TemporaryDirectory(prefix="octavo-cache-")
_data_folder = tempfile.TemporaryDirectory(prefix="octavo-data-")
ENDLESS = (COUNTING, "--raw", "--temperature", "0", "--threads", "1")


def octavo(
    *arguments: str, stdin: str | bytes = b"", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end; both outputs are decoded as UTF-8."""
    result = subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        cwd=ROOT,
        env=environment(variables),
        timeout=120,
        check=False,
    )
    return subprocess.CompletedProcess(
        result.args, result.returncode, result.stdout.decode("utf-8"), result.stderr.decode("utf-8")
    )


def octavo_here(*arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The same in this process, which costs no start: for commands that need no terminal and no signals.

    Variables that a library reads when it is imported are not read again.
    """
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    ours = {"OCTAVO_DATA_DIR": _data_folder.name} | dict(os.environ) | {"OCTAVO_CACHE_DIR": _cache_folder.name}
    with (
        mock.patch.object(sys, "argv", ["octavo", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        mock.patch.dict(os.environ, ours | dict(variables or {})),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    said = [stream.buffer.getvalue().decode("utf-8") for stream in (stdout, stderr)]
    return subprocess.CompletedProcess(arguments, code, *said)


def start(
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    stderr: int = subprocess.PIPE,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start the command at the head of a process group, as a shell does, to interrupt it as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "app", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=ROOT,
        env=environment(variables),
        start_new_session=True,
        bufsize=0,
    )


def interrupt(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> None:
    """Ctrl-C: the signal goes to every process of the group."""
    os.killpg(process.pid, number)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with what a test adds, and with Python's usual buffers, which some machines switch off.

    All tests share a cache folder, and those that do not set another one a data folder, which are not the user's.
    """
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ours = {"OCTAVO_DATA_DIR": _data_folder.name} | ours
    return ours | {"OCTAVO_CACHE_DIR": _cache_folder.name} | dict(extra or {})
