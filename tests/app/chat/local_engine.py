"""The real paged engine in this process, stepped by the test: no draft tokens and no clock, so that nothing varies."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from engine.client import Deliver
from engine.config import EngineConfig
from engine.generation import TextGeneration
from engine.messages import Finished, Loaded, TextEvent, TextRequest
from engine.paged import PagedEngine
from engine.survey import PoolSurvey
from engine.tokenizer import Tokenizer


class Answered(NamedTuple):
    """A request and its end."""

    request: TextRequest
    finished: Finished


class LocalEngine:
    """Stands in for EngineClient. answered: what has ended, in order."""

    def __init__(self, path: Path, context: int = 2048) -> None:
        config = EngineConfig(context=context, threads=1, device="CPU")
        self.engine = PagedEngine(str(path), config, lambda _: None, speculate=False)
        self.tokenizer = Tokenizer(str(path))
        self.answered: list[Answered] = []
        self._generation = TextGeneration(self.engine, self.tokenizer)
        self._ids = itertools.count(1)
        self._requests: dict[int, tuple[TextRequest, Deliver]] = {}

    def open(self, _path: Path, _config: EngineConfig, _on_loading: Callable[[float], object]) -> LocalEngine:
        """To be given to a session in place of EngineClient."""
        return self

    def load(self) -> Loaded:
        """It is loaded."""
        return Loaded("paged", self.engine.context, None, None)

    def submit(self, request: TextRequest, deliver: Deliver) -> int:
        """Start a request; `step` goes on with it."""
        request_id = next(self._ids)
        self._requests[request_id] = (request, deliver)
        self._deliver(self._generation.submit(request_id, request))
        return request_id

    def cancel(self, request_id: int) -> None:
        """End a request."""
        self._deliver(self._generation.cancel(request_id))

    def count_tokens(self, request: TextRequest) -> Future[int]:
        """See EngineClient.count_tokens."""
        future: Future[int] = Future()
        future.set_result(self._generation.count_tokens(request))
        return future

    def survey(self) -> Future[PoolSurvey]:
        """See EngineClient.survey."""
        future: Future[PoolSurvey] = Future()
        future.set_result(self._generation.survey())
        return future

    def step(self) -> bool:
        """Run one step; False when there was nothing to do."""
        if not self._generation.has_work():
            return False
        self._deliver(self._generation.step())
        return True

    def close(self) -> None:
        """The test closes it, with `free`: a session may come back."""

    def free(self) -> None:
        """Free native memory."""
        self.engine.close()
        self.tokenizer.close()

    def _deliver(self, events: list[TextEvent]) -> None:
        for event in events:
            request, deliver = self._requests[event.request_id]
            if isinstance(event, Finished):
                self.answered.append(Answered(request, event))
            deliver(event)
