"""The process that quantizes, at the other end of process.py: jobs come in, steps and results go out.

A thread of its own watches the connection: when it closes, the process ends, in the middle of whatever it does.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engine.errors import OctavoError
from models.errors import QuantizeError
from models.quantization.plan import Compare, DryRun, Job, Step, Write
from models.quantization.process import Done, Failed

if TYPE_CHECKING:
    Parent = Connection[Step | Done | Failed, Job]


def main(descriptor: int) -> None:
    """Serve the process that holds the other end of the connection, until that process is gone."""
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a failed assertion would start a debugger to print a trace
    parent: Parent = Connection(descriptor)
    jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(parent, jobs), name="listener", daemon=True).start()
    while True:
        parent.send(_answer(jobs.get(), parent.send))


def _listen(parent: Parent, jobs: queue.SimpleQueue[Job]) -> None:
    try:
        while True:
            jobs.put(parent.recv())
    except (EOFError, OSError):
        os._exit(0)


def _answer(job: Job, on_step: Callable[[Step], object]) -> Done | Failed:
    from models.quantization.quality import compare  # noqa: PLC0415 - native code, only once the environment is set
    from models.quantization.quantizer import dry_run, write  # noqa: PLC0415

    try:
        match job:
            case DryRun():
                return Done(dry_run(job))
            case Write():
                write(job, on_step)
                return Done(None)
            case Compare():
                return Done(compare(job, on_step))
    except OctavoError as error:
        return Failed(error)
    except BrokenPipeError:
        os._exit(0)
    except Exception as error:
        summary = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        failure = QuantizeError(f"Quantizing failed on a defect of its own ({summary}).")
        failure.add_note(traceback.format_exc())
        return Failed(failure)
