"""`octavo run --batch`: many prompts through one engine, one JSON result a line as each of them ends.

A line that cannot be answered gets a result with `error`, and the others go on: a long batch is not lost for
one typing error. The exit code says whether every line was answered.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from app.answers import Answers, to_json
from app.batch_lines import parse_line
from app.terminal import Interrupted, StatusLine, interrupts_to, write_line
from engine.client import EngineClient
from engine.errors import OctavoError
from engine.messages import Failed, Finished, Loaded, Notice, TextEvent
from engine.units import format_bytes

LONGEST_LINE = 64 * 2**20
"""Bytes of a line: far more than any context holds, and an end to a file that has no lines."""

IN_FLIGHT = 32
"""Requests in the engine at once; it computes as many of them together as fit its memory."""


class Line(NamedTuple):
    """A line of the file, numbered from 1."""

    number: int
    content: bytes


class EndOfFile(NamedTuple):
    """No more lines, because the file ended or cannot be read any further."""

    error: Exception | None = None


@dataclass
class _Running:
    """A line in the engine."""

    id: Any
    answers: Answers


class Batch:
    """One pass over a batch file. One thread reads lines; all else happens on the thread that calls `run`."""

    def __init__(
        self, client: EngineClient, defaults: Mapping[str, Any], loaded: Loaded, model: str, status: StatusLine
    ) -> None:
        """`defaults` holds the values of REQUEST_OPTIONS for what a line leaves out."""
        self._client = client
        self._defaults = defaults
        self._loaded = loaded
        self._model = model
        self._status = status
        self._inbox: queue.SimpleQueue[TextEvent | Interrupted | Line | EndOfFile] = queue.SimpleQueue()
        self._room = threading.Semaphore(IN_FLIGHT)
        self._running: dict[int, _Running] = {}
        self._interrupted: Interrupted | None = None
        self._reading = True
        self._reading_error: Exception | None = None
        self._n_answered = self._n_failed = self._n_tokens = 0

    def run(self, path: str) -> int:
        """Answer the lines of the file at `path`, or of standard input for "-"; returns the exit code.

        Raises OctavoError when the file cannot be read to its end, after the lines before are answered.
        """
        started = time.monotonic()
        threading.Thread(target=self._read, args=(path,), name="batch-reader", daemon=True).start()
        with interrupts_to(self._inbox.put):
            while self._running or (self._reading and not self._interrupted):
                self._take(self._inbox.get())
        seconds = time.monotonic() - started
        self._status.note(
            f"{self._n_answered:,} answered, {self._n_failed:,} failed, "
            f"{self._n_tokens:,} tokens in {seconds:.1f} s ({self._n_tokens / seconds:.1f} tok/s)"
        )
        if self._reading_error:
            raise self._reading_error
        if self._interrupted:
            return self._interrupted.exit_code
        return 1 if self._n_failed else 0

    def _read(self, path: str) -> None:
        try:
            with Path(path).open("rb") if path != "-" else open(0, "rb", closefd=False) as file:
                for line in _lines(file):
                    if line.content.strip():
                        self._room.acquire()
                        self._inbox.put(line)
            self._inbox.put(EndOfFile())
        except OSError as error:
            self._inbox.put(EndOfFile(OctavoError(f"The batch file cannot be read: {error.strerror}.")))
        except Exception as error:
            self._inbox.put(EndOfFile(error))

    def _take(self, event: TextEvent | Interrupted | Line | EndOfFile) -> None:
        match event:
            case Line() if not self._interrupted:
                self._start(event)
            case EndOfFile(error):
                self._reading, self._reading_error = False, error
            case Interrupted():
                self._interrupted = event
                for request_id in self._running:
                    self._client.cancel(request_id)
            case Notice(_, text):
                self._status.note(text)
            case Finished():
                self._finish(event)
            case Failed(request_id, error):
                self._fail(self._running.pop(request_id).id, error)

    def _start(self, line: Line) -> None:
        parsed = parse_line(line.number, line.content, self._defaults)
        if isinstance(parsed.request, OctavoError):
            self._fail(parsed.id, parsed.request)
        else:
            request_id = self._client.submit(parsed.request, self._inbox.put)
            self._running[request_id] = _Running(parsed.id, Answers(parsed.request.n))

    def _finish(self, event: Finished) -> None:
        running = self._running[event.request_id]
        running.answers.add(event)
        if running.answers.complete:
            del self._running[event.request_id]
            self._room.release()
            self._n_answered += 1
            self._n_tokens += running.answers.figures().generated_tokens
            write_line(to_json({"id": running.id, **running.answers.as_dict(self._loaded.engine, self._model)}))

    def _fail(self, identifier: Any, error: OctavoError) -> None:
        self._room.release()
        self._n_failed += 1
        write_line(to_json({"id": identifier, "error": str(error)}))


def _lines(file: IO[bytes]) -> Iterator[Line]:
    for number in itertools.count(1):
        content = file.readline(LONGEST_LINE + 1)
        if not content:
            return
        if len(content) > LONGEST_LINE:
            limit = format_bytes(LONGEST_LINE)
            raise OctavoError(f"Line {number:,} of the batch file is longer than {limit}: the lines after it are lost.")
        yield Line(number, content)
