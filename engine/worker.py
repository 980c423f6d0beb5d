"""The engine's own process: a failed assertion in native code ends this process and not the app.

The parent is engine/client.py. The protocol is engine/messages.py: Load once, then commands down and
tuples of reports up, over one connection that is also the lifeline: when it closes, the process ends, in the
middle of whatever it does. A thread of its own listens, so that a long computation keeps it from nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import queue
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from engine.child import prepare_child
from engine.errors import OctavoError
from engine.messages import (
    Answered,
    Cancel,
    Command,
    CountTokens,
    Crashed,
    Failed,
    Fatal,
    Load,
    Loaded,
    Loading,
    Report,
    Submit,
    TakeSurvey,
)

if TYPE_CHECKING:
    from engine.generation import TextGeneration

    AppConnection = Connection[tuple[Report, ...], Load | Command]

_PROGRESS_STEP = 0.01
"""Loading is reported in steps of this fraction."""


class _Inbox:
    """What the parent sends. on_cancel: called by the listener's thread at once, while the engine computes."""

    def __init__(self) -> None:
        self.commands: queue.SimpleQueue[Load | Command] = queue.SimpleQueue()
        self.on_cancel: Callable[[], None] = lambda: None

    def put(self, command: Load | Command) -> None:
        """From the listener's thread."""
        self.commands.put(command)
        if isinstance(command, Cancel):
            self.on_cancel()


def main(descriptor: int) -> None:
    """Serve the process that holds the other end of the connection, until that process is gone."""
    faulthandler.enable(all_threads=False)
    connection: AppConnection = Connection(descriptor)
    inbox = _Inbox()
    prepare_child(connection, inbox.put)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody waits for an answer any more
        _serve(connection, inbox)


def _serve(connection: AppConnection, inbox: _Inbox) -> None:
    load = inbox.commands.get()
    assert isinstance(load, Load)
    try:
        loaded, generation = _load(load, connection)
        inbox.on_cancel = generation.interrupt
        connection.send((loaded,))
        _run(generation, connection, inbox)
    except OctavoError as error:
        connection.send((Fatal(error),))
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        summary = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        connection.send((Crashed(summary, traceback.format_exc()),))


def _load(load: Load, connection: AppConnection) -> tuple[Loaded, TextGeneration]:
    from engine.generation import TextGeneration  # noqa: PLC0415 - native code, only once the environment is set
    from engine.loader import load_engine  # noqa: PLC0415
    from engine.tokenizer import Tokenizer  # noqa: PLC0415

    reported = 0.0

    def report(fraction: float) -> None:
        nonlocal reported
        if fraction < min(1.0, reported + _PROGRESS_STEP):
            return
        reported = fraction
        with contextlib.suppress(OSError):  # the parent is gone, and the listener is about to end the process
            connection.send((Loading(fraction),))

    engine, notice, tuning = load_engine(load.path, load.config, report)
    return Loaded(engine.name, engine.context, notice, tuning), TextGeneration(engine, Tokenizer(load.path))


def _run(generation: TextGeneration, connection: AppConnection, inbox: _Inbox) -> None:
    """Take commands as they come, wait for one when there is nothing to compute, and step otherwise."""
    while True:
        while not generation.has_work() or not inbox.commands.empty():
            _send(connection, _obey(inbox.commands.get(), generation))
        _send(connection, generation.step())


def _send(connection: AppConnection, reports: Sequence[Report]) -> None:
    if reports:
        connection.send(tuple(reports))


def _obey(command: Load | Command, generation: TextGeneration) -> Sequence[Report]:
    assert not isinstance(command, Load)
    try:
        match command:
            case Submit(request_id, request):
                return generation.submit(request_id, request)
            case Cancel(request_id, index):
                return generation.cancel(request_id, index)
            case CountTokens(request_id, request):
                return [Answered(request_id, generation.count_tokens(request))]
            case TakeSurvey(request_id):
                return [Answered(request_id, generation.survey())]
    except OctavoError as error:
        return [Failed(command.request_id, error)]
