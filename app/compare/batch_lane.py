"""Batches of sequences: the paged engine against all ways in which llama.cpp can share its window."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from app.compare.batch_messages import BatchFailed, BatchLoad, BatchLoaded, BatchTime
from app.compare.lanes import BatchTest, BatchVariant, RequestStopped, Started, Stopped
from engine.child import ending, last_lines, start_child
from engine.config import EngineConfig, EngineKind
from engine.errors import EngineDied
from engine.messages import Loading

_PATIENCE = 0.05
"""Seconds without an answer after which it is asked whether the user wants to stop."""
_ROUND = 256
"""llama.cpp rounds the share of a sequence up to a multiple of this."""


def paged_variants(path: Path, config: EngineConfig, tests: Sequence[BatchTest]) -> tuple[BatchVariant, ...]:
    """For BatchLane. tests: all that will be run. The context of `config` is not used."""
    load = _load_for(path, replace(config, kind=EngineKind.PAGED), tests)
    return (ProcessBatchVariant("", load),)


def contiguous_variants(path: Path, config: EngineConfig, tests: Sequence[BatchTest]) -> tuple[BatchVariant, ...]:
    """For BatchLane: llama.cpp with one cache for all or one for each ("split"), and flash attention on and off."""
    config = replace(config, kind=EngineKind.CONTIGUOUS)
    return tuple(
        ProcessBatchVariant(
            f"{'unified' if unified else 'split'}, flash {'on' if flash else 'off'}",
            _load_for(path, replace(config, flash=flash), tests, unified=unified),
        )
        for unified in (True, False)
        for flash in (True, False)
    )


def window_for(tests: Sequence[BatchTest]) -> int:
    """Tokens that all sequences of the largest tests take together."""
    share = max(test.depth + 1 + test.n_tokens for test in tests)
    return max(test.n_sequences for test in tests) * (-(-share // _ROUND) * _ROUND)


def _load_for(path: Path, config: EngineConfig, tests: Sequence[BatchTest], *, unified: bool = False) -> BatchLoad:
    n_sequences = max(test.n_sequences for test in tests)
    return BatchLoad(str(path), replace(config, context=window_for(tests)), n_sequences, unified)


class ProcessBatchVariant:
    """See lanes.BatchVariant. To stop a test ends the process; the next test starts another."""

    def __init__(self, name: str, load: BatchLoad) -> None:
        self.name = name
        self._load = load
        self._on_loading: Callable[[float], object] = lambda _: None
        self._process: _Process | None = None

    def start(self, on_loading: Callable[[float], object]) -> Started:
        """Raises what the engines raise when they load a model, or EngineDied."""
        self.close()
        self._on_loading = on_loading
        self._process = process = _Process()
        process.send(self._load)
        while not isinstance(answer := process.receive(lambda: False), BatchLoaded):
            assert isinstance(answer, Loading)
            on_loading(answer.fraction)
        config = self._load.config
        return Started(str(config.kind), config.context)

    def decode(self, test: BatchTest, stopped: Stopped) -> float:
        """Raises RequestStopped, MemoryLimitError or EngineDied."""
        if self._process is None:
            self.start(self._on_loading)
        assert self._process is not None
        try:
            self._process.send(test)
            answer = self._process.receive(stopped)
        except RequestStopped:
            self.close()
            self._process = None
            raise
        assert isinstance(answer, BatchTime)
        return answer.seconds

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()


class _Process:
    """One run of batch_worker.py. `_lock` keeps the connection open for the thread that waits for an answer."""

    def __init__(self) -> None:
        with contextlib.ExitStack() as on_failure:
            self._log: IO[bytes] = on_failure.enter_context(tempfile.TemporaryFile())
            ours, theirs = Pipe()
            self._connection: Connection[BatchLoad | BatchTest, Loading | BatchLoaded | BatchTime | BatchFailed] = (
                on_failure.enter_context(ours)
            )
            with theirs:
                try:
                    self._process = start_child("app.compare.batch_worker", theirs.fileno(), self._log)
                except OSError as error:
                    raise EngineDied(f"The engine's process cannot be started: {error.strerror or error}.") from None
            on_failure.pop_all()
        self._lock = threading.Lock()
        self._is_closed = False

    def send(self, message: BatchLoad | BatchTest) -> None:
        """That the process is gone is told by `receive`."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.send(message)

    def receive(self, stopped: Stopped) -> Loading | BatchLoaded | BatchTime:
        """Wait for an answer. Raises the error that is the answer, EngineDied, or RequestStopped."""
        with self._lock:
            try:
                while not self._connection.poll(_PATIENCE):
                    if stopped():
                        raise RequestStopped
                answer = self._connection.recv()
            except (EOFError, OSError):
                raise self._cause_of_death() from None
        if isinstance(answer, BatchFailed):
            raise answer.error
        return answer

    def close(self) -> None:
        """End the process, in the middle of whatever it does; whoever waits for it gets EngineDied."""
        self._is_closed = True
        self._process.kill()
        with self._lock:
            self._process.wait()
            self._connection.close()
            self._log.close()

    def _cause_of_death(self) -> EngineDied:
        if self._is_closed:
            return EngineDied("The engine was closed.")
        error = EngineDied(f"The engine's process {ending(self._process.wait())}.")
        lines = last_lines(self._log)
        if lines:
            error.add_note(lines)
        return error
