"""A child process and the memory that it took, told by a small process in between.

Linux counts the memory of whoever starts a process as that process's own, up to the moment it begins its program.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.app.command import ROOT, environment

_BETWEEN = """
import json, os, sys
_, result, *arguments = sys.argv
process = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ)
_, status, usage = os.wait4(process, 0)
peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
with open(result, "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), peak], file)
"""


class Measured(NamedTuple):
    """code: below 0 the number of a signal. peak: most memory of the process, or of one that it started, in bytes."""

    code: int
    stdout: str
    stderr: str
    peak: int


def measured(
    arguments: Sequence[str], *, stdin: str = "", variables: Mapping[str, str] | None = None, timeout: float = 20
) -> Measured:
    """Run Python with these arguments; raises subprocess.TimeoutExpired after `timeout` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", _BETWEEN, str(result), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(variables),
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(stdin.encode(), timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise
        code, peak = json.loads(result.read_text())
    return Measured(code, stdout.decode(), stderr.decode(), peak)
