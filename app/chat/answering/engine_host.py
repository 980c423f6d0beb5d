"""The engine of the model in use, which loads while the user already types, and may be exchanged for another.

Its methods belong to the thread of the screens and return at once. What an engine has to say arrives on threads of
its own and is handed over by `post`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from app.chat.events import EngineFailed, EngineLoading, EngineReady
from engine.client import Deliver, EngineClient
from engine.config import EngineConfig
from engine.errors import EngineDied, OctavoError
from engine.messages import Failed, Finished, Loaded, TextEvent, TextRequest
from engine.survey import PoolSurvey

Post = Callable[[Callable[[], None]], None]
"""Calls a function soon, on the thread of the screens. Any thread may call it."""

_Answer = TypeVar("_Answer")

EngineEvent = EngineLoading | EngineReady | EngineFailed


class ChatEngine(Protocol):
    """What EngineClient offers, as far as chats need it."""

    def load(self) -> Loaded:
        """See EngineClient.load."""

    def submit(self, request: TextRequest, deliver: Deliver) -> int:
        """See EngineClient.submit."""

    def cancel(self, request_id: int) -> None:
        """See EngineClient.cancel."""

    def count_tokens(self, request: TextRequest) -> Future[int]:
        """See EngineClient.count_tokens."""

    def survey(self) -> Future[PoolSurvey]:
        """See EngineClient.survey."""

    def close(self) -> None:
        """See EngineClient.close."""


OpenEngine = Callable[[Path, EngineConfig, Callable[[float], object]], ChatEngine]


class Ticket:
    """One request, from the moment it is asked for. Its id is known once the engine has it."""

    def __init__(self, engine: _Running) -> None:
        self.engine = engine
        self._request_id: int | None = None

    def cancel(self) -> None:
        """End it; its last event is still delivered."""

        def work() -> None:
            if self._request_id is not None:
                self.engine.client.cancel(self._request_id)

        self.engine.errands.submit(work)

    def _submit(self, request: TextRequest, deliver: Deliver) -> None:
        try:
            self._request_id = self.engine.client.submit(request, deliver)
        except OctavoError as error:
            deliver(Failed(0, error))


@dataclass(eq=False)
class _Running:
    """An engine, its requests that have not ended, and the thread that does what might make the screens wait."""

    path: Path
    config: EngineConfig
    client: ChatEngine
    n_requests: int = 0
    is_loading: bool = False
    errands: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "engine-errands"))

    def close(self) -> None:
        """End its process; requests in it fail."""
        self.errands.shutdown(wait=False, cancel_futures=True)
        self.client.close()


class EngineHost:
    """Owns the engine in use, and those before it that still have an answer to finish.

    loaded: what the engine in use is, None until it is ready.
    """

    def __init__(self, post: Post, on_event: Callable[[EngineEvent], None], open_engine: OpenEngine = EngineClient):
        self.loaded: Loaded | None = None
        self._post = post
        self._on_event = on_event
        self._open = open_engine
        self._current: _Running | None = None
        self._others: list[_Running] = []

    @property
    def path(self) -> Path | None:
        """The model file in use."""
        return self._current.path if self._current else None

    def use(self, path: Path, config: EngineConfig) -> None:
        """Take this model from now on, and load it unless it is in use already."""
        if self._current and (self._current.path, self._current.config) == (path, config):
            self.restart()
            return
        known = next((one for one in self._others if (one.path, one.config) == (path, config)), None)
        if self._current:
            self._others.append(self._current)
        if known:
            self._others.remove(known)
        self._current = known or self._start(path, config)
        self.loaded = None
        self._retire()
        self._load(self._current)

    @property
    def is_busy(self) -> bool:
        """Whether the engine in use has requests that have not ended, in the background too."""
        return self._current is not None and self._current.n_requests > 0

    def submit(self, request: TextRequest, deliver: Callable[[TextEvent], None], after: Ticket | None = None) -> Ticket:
        """Send a request to the engine in use; its events come to `deliver` on the thread of the screens.

        after: a request whose last event is being delivered; this one goes to the same engine.
        """
        engine = after.engine if after else self._current
        assert engine is not None
        engine.n_requests += 1
        unfinished = request.n

        def take(event: TextEvent) -> None:
            nonlocal unfinished
            unfinished -= isinstance(event, Finished)
            if isinstance(event, Failed) and isinstance(event.error, EngineDied):
                self._mourn(engine, event.error)
            deliver(event)
            if isinstance(event, Failed) or (isinstance(event, Finished) and not unfinished):
                engine.n_requests -= 1
                self._retire()

        ticket = Ticket(engine)
        engine.errands.submit(ticket._submit, request, lambda event: self._post(lambda: take(event)))
        return ticket

    def count_tokens(self, request: TextRequest, deliver: Callable[[int | OctavoError], None]) -> None:
        """Count the tokens of a request's prompt."""
        self._ask(lambda engine: engine.count_tokens(request), deliver)

    def survey(self, deliver: Callable[[PoolSurvey | OctavoError], None]) -> None:
        """Look at the KV memory of the engine in use; nothing happens while there is none."""
        if self.loaded is not None:
            self._ask(lambda engine: engine.survey(), deliver)

    def restart(self) -> None:
        """Load the model in use again, if its process has died."""
        if self._current and self.loaded is None and not self._current.is_loading:
            self._load(self._current)

    def close(self) -> None:
        """End all engines."""
        for engine in [*self._others, *([self._current] if self._current else [])]:
            engine.close()
        self._others, self._current, self.loaded = [], None, None

    def _ask(
        self, question: Callable[[ChatEngine], Future[_Answer]], deliver: Callable[[_Answer | OctavoError], None]
    ) -> None:
        engine = self._current
        assert engine is not None

        def on_answer(future: Future[_Answer]) -> None:
            error = future.exception()
            if error is None:
                self._post(lambda: deliver(future.result()))
            elif isinstance(error, OctavoError):
                self._post(lambda: deliver(error))

        def work() -> None:
            try:
                question(engine.client).add_done_callback(on_answer)
            except OctavoError as error:
                failure = error
                self._post(lambda: deliver(failure))

        engine.errands.submit(work)

    def _start(self, path: Path, config: EngineConfig) -> _Running:
        def take(fraction: float) -> None:
            if not engine.is_loading:  # a process that died has been started again, by a request
                self._load(engine)
            self._tell(engine, EngineLoading(fraction))

        def on_loading(fraction: float) -> None:
            self._post(lambda: take(fraction))

        engine = _Running(path, config, self._open(path, config, on_loading))
        return engine

    def _load(self, engine: _Running) -> None:
        engine.is_loading = True

        def work() -> None:
            try:
                event: EngineEvent = EngineReady(engine.client.load())
            except OctavoError as error:
                event = EngineFailed(error)
            self._post(lambda: self._tell(engine, event))

        threading.Thread(target=work, name="engine-load", daemon=True).start()

    def _tell(self, engine: _Running, event: EngineEvent) -> None:
        engine.is_loading = isinstance(event, EngineLoading)
        if engine is not self._current:
            return
        self.loaded = event.loaded if isinstance(event, EngineReady) else None
        self._on_event(event)

    def _mourn(self, engine: _Running, error: EngineDied) -> None:
        """The process has died, which every request in it tells; the screens are told once."""
        if engine is self._current and self.loaded is not None:
            self._tell(engine, EngineFailed(error))

    def _retire(self) -> None:
        """Close engines that are not in use and have nothing left to do."""
        for engine in self._others.copy():
            if engine.n_requests == 0:
                self._others.remove(engine)
                engine.errands.submit(engine.client.close)
                engine.errands.shutdown(wait=False)
