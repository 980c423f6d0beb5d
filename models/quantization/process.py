"""Our side of the process that quantizes: a failed assertion in native code ends that process and not this one.

It also makes native calls interruptible, and gives back all memory that they took. Its own side is
models/quantization/worker.py. The connection is its lifeline: without us it ends at once.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import Any

from engine.errors import OctavoError
from models.errors import QuantizeError
from models.quantization.plan import Job, Step

_LOG_LINES = 20
"""Lines of a dead process's output that are kept."""

_WORKER = "models.quantization.worker"
_CAUSES = {
    "SIGKILL": ", perhaps because memory ran out",
    "SIGBUS": ", perhaps because the model file was cut short meanwhile",
}


@dataclass(frozen=True)
class Done:
    """A job's result."""

    result: object


@dataclass(frozen=True)
class Failed:
    """A job's error, worded for people; its notes are lines of llama.cpp's log that explain it."""

    error: OctavoError


class QuantizeProcess:
    """Does one job at a time. Use as a context manager: the process ends with the block, whatever it is doing."""

    def __init__(self, keep: int | None = None) -> None:
        """keep: a descriptor that the process holds open for as long as it lives. Raises QuantizeError."""
        with contextlib.ExitStack() as on_failure:
            self._output = on_failure.enter_context(tempfile.TemporaryFile())
            ours, theirs = Pipe()
            self._connection = on_failure.enter_context(ours)
            with theirs:
                number = theirs.fileno()
                code = f"import sys; sys.path[:] = {sys.path!r}; from {_WORKER} import main; main({number})"
                try:
                    self._process = subprocess.Popen(
                        [sys.executable, "-c", code],
                        pass_fds=[number] if keep is None else [number, keep],
                        stdin=subprocess.DEVNULL,
                        stdout=self._output,
                        stderr=self._output,
                        start_new_session=True,  # Ctrl-C in the terminal is for us alone
                    )
                except OSError as error:
                    raise QuantizeError(f"The process that quantizes cannot be started: {error.strerror}.") from None
            on_failure.pop_all()

    def run(self, job: Job, on_step: Callable[[Step], object] = lambda _: None) -> Any:
        """Wait for the result of a job; steps on the way go to `on_step`.

        Raises the job's own OctavoError, or QuantizeError when the process dies; notes carry what it printed.
        """
        try:
            self._connection.send(job)
            while True:
                match self._connection.recv():
                    case Step() as step:
                        on_step(step)
                    case Done(result):
                        return result
                    case Failed(error):
                        raise error
        except (EOFError, OSError):
            raise self._cause_of_death() from None

    def close(self) -> None:
        """End the process, in the middle of whatever it does, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()

    def __enter__(self) -> QuantizeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cause_of_death(self) -> QuantizeError:
        code = self._process.wait()
        if code == -signal.SIGABRT:
            what = "llama.cpp stopped on a failed check of its own, perhaps because the model file is damaged"
        else:
            end = f"by {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
            what = f"The process that quantizes was ended {end}"
        error = QuantizeError(f"{what}; nothing was changed.")
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        if lines:
            error.add_note("\n".join(lines[-_LOG_LINES:]))
        return error


def _signal_name(number: int) -> str:
    """With what may have caused it."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"
    return name + _CAUSES.get(name, "")
