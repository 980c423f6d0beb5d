"""The app's side of an engine in its own process: start it, talk to it, and outlive its death."""

from __future__ import annotations

import contextlib
import itertools
import queue
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from engine.child import ending, last_lines, start_child
from engine.config import EngineConfig
from engine.errors import EngineDied, OctavoError
from engine.messages import (
    Answered,
    Cancel,
    Command,
    CountTokens,
    Crashed,
    Failed,
    Fatal,
    Finished,
    Load,
    Loaded,
    Loading,
    Question,
    Report,
    Submit,
    TakeSurvey,
    TextEvent,
    TextRequest,
)
from engine.printable import one_line

if TYPE_CHECKING:
    from engine.survey import PoolSurvey

Deliver = Callable[[TextEvent], object]
"""Receives the events of a request, on the client's reader thread: it must return at once and not raise."""

_ASSERTION = re.compile(r"[\w.-]+:\d+: GGML_ASSERT\(.*\) failed")
"""What ggml writes before it aborts because something is not as it has to be."""


class EngineClient:
    """An engine for one model file. Any thread may call any method.

    The process starts with the first `load` or `submit`. When it dies, every request in it fails with
    EngineDied, and the next `load` or `submit` starts a fresh one.
    """

    def __init__(
        self, path: Path, config: EngineConfig, on_loading: Callable[[float], object] = lambda _: None
    ) -> None:
        """`on_loading` receives the fraction that is loaded, from 0 to 1, on the client's reader thread."""
        self._load = Load(str(path), config)
        self._on_loading = on_loading
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._process: _EngineProcess | None = None

    def load(self) -> Loaded:
        """Start the process if none runs, and wait until the model is loaded.

        Raises what load_engine raises, or EngineDied.
        """
        with self._lock:
            process = self._running_process()
        return process.loaded.result()

    def submit(self, request: TextRequest, deliver: Deliver) -> int:
        """Send a request, without waiting for anything, and return its id; its events go to `deliver`."""
        request_id = next(self._ids)
        with self._lock:
            process = self._running_process()
            try:
                process.submit(request_id, request, deliver)
            except OSError:  # it died this moment, so that nobody noticed yet
                process.kill()
                process = self._running_process()
                process.submit(request_id, request, deliver)
        return request_id

    def cancel(self, request_id: int, index: int | None = None) -> None:
        """End all answers of a request, or the one at `index`; its last events are still delivered."""
        with self._lock:
            if self._process is not None:
                self._process.send(Cancel(request_id, index))

    def count_tokens(self, request: TextRequest) -> Future[int]:
        """Tokens of a request's prompt, between two steps of the engine.

        The future fails with PromptError when the template refuses the messages, or with EngineDied.
        """
        return self._ask(CountTokens(next(self._ids), request))

    def survey(self) -> Future[PoolSurvey]:
        """What the KV memory looks like, between two steps of the engine. The future may fail with EngineDied."""
        return self._ask(TakeSurvey(next(self._ids)))

    def _ask(self, question: Question) -> Future[Any]:
        with self._lock:
            return self._running_process().ask(question)

    def stream(self, request: TextRequest) -> Iterator[TextEvent]:
        """Send a request when the first event is asked for, and yield its events as they come.

        Leaving the loop early cancels the request. Raises the error of a request that fails.
        """
        events: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
        request_id = self.submit(request, events.put)
        unfinished = request.n
        try:
            while unfinished:
                event = events.get()
                if isinstance(event, Failed):
                    unfinished = 0
                    raise event.error
                unfinished -= isinstance(event, Finished)
                yield event
        finally:
            if unfinished:
                self.cancel(request_id)

    @property
    def pid(self) -> int | None:
        """Process id of the engine, None when no process runs."""
        process = self._process
        return process.pid if process is not None and process.alive else None

    def close(self) -> None:
        """End the process at once, whatever it is doing; requests in it fail with EngineDied."""
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _running_process(self) -> _EngineProcess:
        if self._process is None or not self._process.alive:
            self._process = _EngineProcess(self._load, self._on_loading)
        return self._process


@dataclass
class _Pending:
    """A request that waits for events, and for the end of so many answers."""

    deliver: Deliver
    unfinished: int


class _EngineProcess:
    """One run of engine/worker.py, and the thread that reads what it reports.

    The reader thread delivers the events; it also notices the end of the process and tells everyone who waits.
    `_lock` covers `alive`, writing to the connection, and new entries in `_pending`.
    """

    def __init__(self, load: Load, on_loading: Callable[[float], object]) -> None:
        self.loaded: Future[Loaded] = Future()
        self.alive = True
        self._on_loading = on_loading
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._asked: dict[int, Future[Any]] = {}
        self._verdict: OctavoError | None = None
        try:
            self._start()
        except OSError as error:
            raise EngineDied(f"The engine's process cannot be started: {error.strerror or error}.") from error
        self._reader = threading.Thread(target=self._read, name="engine-reader", daemon=True)
        self._reader.start()
        self.send(load)

    def _start(self) -> None:
        with contextlib.ExitStack() as on_failure:
            self._log: IO[bytes] = on_failure.enter_context(tempfile.TemporaryFile())
            ours, theirs = Pipe()
            self._connection: Connection[Load | Command, tuple[Report, ...]] = on_failure.enter_context(ours)
            with theirs:
                self._process = start_child("engine.worker", theirs.fileno(), self._log)
            on_failure.pop_all()  # the reader thread closes them

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def submit(self, request_id: int, request: TextRequest, deliver: Deliver) -> None:
        """Raises OSError, and forgets the request, when the process is gone."""
        with self._lock:
            if not self.alive:
                raise BrokenPipeError
            self._pending[request_id] = _Pending(deliver, request.n)
            try:
                self._connection.send(Submit(request_id, request))
            except OSError:
                del self._pending[request_id]
                raise

    def ask(self, question: Question) -> Future[Any]:
        """Send a question; the future gets its answer, or why there is none."""
        answer: Future[Any] = Future()
        with self._lock:
            if self.alive:
                self._asked[question.request_id] = answer
                with contextlib.suppress(OSError):
                    self._connection.send(question)
                return answer
        answer.set_exception(self._verdict or EngineDied("The engine's process is gone; ask again to start it."))
        return answer

    def send(self, command: Load | Command) -> None:
        """A process that is gone is no error here: whoever waits for it hears from the reader thread."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.send(command)

    def kill(self) -> None:
        """End the process now, and wait until everyone who waited for it knows."""
        self._process.kill()
        self._reader.join()

    def close(self) -> None:
        """End the process because nobody needs it any more."""
        self._verdict = EngineDied("The engine was closed.")
        self.kill()

    def _read(self) -> None:
        try:
            while True:
                for report in self._connection.recv():
                    self._take(report)
        except (EOFError, OSError):
            pass
        finally:
            self._end()

    def _take(self, report: Report) -> None:
        match report:
            case Loading(fraction):
                self._on_loading(fraction)
            case Loaded():
                self.loaded.set_result(report)
            case Fatal(error):
                self._verdict = error
            case Crashed(summary, traceback):
                self._verdict = EngineDied(f"The engine failed on a defect of its own ({summary}).")
                self._verdict.add_note(traceback)
            case Answered(request_id, value):
                self._asked.pop(request_id).set_result(value)
            case Failed(request_id, error) if request_id in self._asked:
                self._asked.pop(request_id).set_exception(error)
            case _:
                self._deliver(report)

    def _deliver(self, event: TextEvent) -> None:
        pending = self._pending.get(event.request_id)
        if pending is None:
            return
        pending.unfinished -= isinstance(event, Finished)
        if isinstance(event, Failed) or not pending.unfinished:
            del self._pending[event.request_id]
        pending.deliver(event)

    def _end(self) -> None:
        with self._lock:
            self.alive = False
            self._connection.close()
        self._process.wait()  # without its connection it ends by itself, if it has not yet
        error = self._verdict or self._cause_of_death()
        self._log.close()
        if not self.loaded.done():
            self.loaded.set_exception(error)
        for request_id, pending in self._pending.items():
            pending.deliver(Failed(request_id, error))
        for answer in self._asked.values():
            answer.set_exception(error)

    def _cause_of_death(self) -> EngineDied:
        while_loading = not self.loaded.done()
        self._log.seek(0)
        log = self._log.read().decode("utf-8", "replace")
        assertion = _ASSERTION.search(log) if while_loading else None
        if assertion:
            return EngineDied(
                f"llama.cpp gave up on the model file, which seems to be damaged ({one_line(assertion[0])}): "
                "download it again, or another conversion of the model."
            )
        what = ending(self._process.returncode, while_loading=while_loading)
        error = EngineDied(f"The engine's process {what}; ask again to start a fresh one.")
        lines = last_lines(self._log)
        if lines:
            error.add_note(lines)
        return error
