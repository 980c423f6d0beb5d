"""An engine whose replies a test speaks, piece by piece, so that every moment of a reply can be looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from engine.client import Deliver
from engine.config import EngineConfig, KvType
from engine.errors import EngineDied, OctavoError
from engine.messages import Failed, Finished, Loaded, Notice, TextDelta, TextRequest
from engine.sequence import FinishReason, KvStats, PrefillEvent, SequenceStats
from engine.survey import BlockState, PoolSurvey, SurveyedSequence

KV = KvStats(16, 1024, 64, 3, 10, 3 * 1024, 20 * 1024, 128 * 1024, KvType.F16, KvType.F16)


class ScriptedRequest:
    """One request, answered by the test."""

    def __init__(self, request_id: int, request: TextRequest, deliver: Deliver) -> None:
        self.request_id = request_id
        self.request = request
        self.text = ""
        self.is_over = False
        self._deliver = deliver

    def read(self, done: int, total: int, reused: int = 0) -> None:
        """The prompt is so far."""
        self._deliver(PrefillEvent(self.request_id, done, total, reused))

    def say(self, text: str) -> None:
        """The next piece of the answer."""
        self.text += text
        self._deliver(TextDelta(self.request_id, 0, text))

    def notice(self, text: str) -> None:
        """A sentence about the request."""
        self._deliver(Notice(self.request_id, text))

    def finish(self, reason: FinishReason = FinishReason.STOP, *, reused: int = 32, computed: int = 10) -> None:
        """The answer is complete."""
        self.is_over = True
        stats = SequenceStats(reused + computed, reused, computed, 21, 0.25, 0.2, 2.0, 3)
        self._deliver(Finished(self.request_id, 0, self.text, (1,) * 21, reason, stats, KV))

    def fail(self, error: OctavoError) -> None:
        """There is no (further) answer."""
        self.is_over = True
        self._deliver(Failed(self.request_id, error))


class ScriptedEngine:
    """Stands in for EngineClient. Requests wait until the test answers them, or, with `answer`, get that at once."""

    def __init__(
        self, *, answer: Callable[[TextRequest], str] | None = None, loads: Callable[[], Loaded] | None = None
    ) -> None:
        self.answer = answer
        self.loads = loads or (lambda: Loaded("paged", 2048, None, None))
        self.requests: list[ScriptedRequest] = []
        self.cancelled: list[int] = []
        self.opened: list[tuple[Path, EngineConfig]] = []
        self.n_loads = 0
        self.is_closed = False
        self.on_loading: Callable[[float], object] = lambda _: None
        self._ids = itertools.count(1)

    def open(self, path: Path, config: EngineConfig, on_loading: Callable[[float], object]) -> ScriptedEngine:
        """To be given to the app in place of EngineClient."""
        self.opened.append((path, config))
        self.on_loading = on_loading
        self.is_closed = False
        return self

    def load(self) -> Loaded:
        """The model is there at once, or what `loads` says."""
        self.n_loads += 1
        return self.loads()

    def submit(self, request: TextRequest, deliver: Deliver) -> int:
        """Keep a request, or answer it."""
        scripted = ScriptedRequest(next(self._ids), request, deliver)
        self.requests.append(scripted)
        if self.answer is not None:
            text = self.answer(request)
            scripted.read(42, 42, 32)
            for piece in text.split(" "):
                scripted.say(" " + piece if scripted.text else piece)
            scripted.finish()
        return scripted.request_id

    def cancel(self, request_id: int) -> None:
        """End a request with what it has."""
        self.cancelled.append(request_id)
        for scripted in self.requests:
            if scripted.request_id == request_id and not scripted.is_over:
                scripted.finish(FinishReason.CANCELLED)

    def count_tokens(self, request: TextRequest) -> Future[int]:
        """A token for each word."""
        future: Future[int] = Future()
        texts = [request.prompt] if isinstance(request.prompt, str) else [m.content for m in request.prompt]
        future.set_result(sum(len(text.split()) for text in texts))
        return future

    def survey(self) -> Future[PoolSurvey]:
        """Some blocks of chat 1, one shared, the rest free."""
        future: Future[PoolSurvey] = Future()
        states = bytes([BlockState.USED] * 3 + [BlockState.CACHED] * 10 + [BlockState.FREE] * 51)
        owners = (-1, 1, 1, *([2] * 10), *([0] * 51))
        future.set_result(PoolSurvey(KV, None, states, owners, (SurveyedSequence(1, 40, 3, 1),)))
        return future

    def die(self) -> None:
        """The process ends in the middle of whatever it does."""
        error = EngineDied("The engine's process was ended by SIGKILL; ask again to start a fresh one.")
        for scripted in self.requests:
            if not scripted.is_over:
                scripted.fail(error)

    def close(self) -> None:
        """Nobody needs it any more."""
        self.is_closed = True
