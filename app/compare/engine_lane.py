"""The variant that runs one of our engines in a worker process."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from app.compare.lanes import Answer, LaneMemory, OnText, RequestStopped, Started, Stopped, Times
from app.compare.machine import process_bytes
from engine.client import EngineClient
from engine.config import EngineConfig
from engine.errors import EngineDied
from engine.messages import Failed, Finished, TextDelta, TextEvent, TextRequest

_PATIENCE = 0.05
"""Seconds without an event after which it is asked whether the user wants to stop."""


class EngineVariant:
    """See lanes.Variant. Its cache is emptied by a new process, so that each start places the memory anew."""

    def __init__(self, name: str, path: Path, config: EngineConfig) -> None:
        self.name = name
        self._path = path
        self._config = config
        self._client: EngineClient | None = None
        self._on_loading: Callable[[float], object] = lambda _: None
        self._window_is_reserved = False

    def start(self, on_loading: Callable[[float], object]) -> Started:
        """Raises what load_engine raises, or EngineDied."""
        self._on_loading = on_loading
        self._client = EngineClient(self._path, self._config, on_loading)
        loaded = self._client.load()
        self._window_is_reserved = loaded.engine == "contiguous"
        return Started(loaded.engine, loaded.context, loaded.notice)

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        """Times are taken on the client's reader thread, when an event arrives."""
        client = self._running()
        events: queue.SimpleQueue[tuple[float, TextEvent]] = queue.SimpleQueue()
        submitted = time.monotonic()
        request_id = client.submit(request, lambda event: events.put((time.monotonic(), event)))
        first = 0.0
        finished: dict[int, Finished] = {}
        was_stopped = False
        while len(finished) < request.n:
            if not was_stopped and stopped():
                was_stopped = True
                client.cancel(request_id)
            try:
                at, event = events.get(timeout=_PATIENCE)
            except queue.Empty:
                continue
            match event:
                case TextDelta(_, index, text):
                    first = first or at
                    if index == 0:
                        on_text(text)
                case Finished():
                    finished[event.index] = event
                case Failed(_, error):
                    raise error
        if was_stopped:
            raise RequestStopped
        answers = [finished[index] for index in range(request.n)]
        return _answer(answers, Times((first or at) - submitted, at - submitted))

    def memory(self) -> LaneMemory:
        """Between two requests everything is cached; the contiguous engine keeps its whole window for it."""
        client = self._running()
        survey = client.survey().result()
        kv = survey.kv
        n_tokens = kv.blocks_used * kv.block_size + survey.tokens_cached
        n_blocks = kv.blocks_total if self._window_is_reserved else kv.blocks_used + kv.blocks_cached
        return LaneMemory(
            kv_used=n_tokens * kv.block_bytes // kv.block_size,
            kv_reserved=n_blocks * kv.block_bytes,
            kv_resident=kv.bytes_resident,
            process=process_bytes(client.pid),
        )

    def forget(self) -> None:
        """Load the model anew."""
        self.close()
        self.start(self._on_loading)

    def quit_and_come_back(self) -> bool:
        """Neither engine keeps its cache beyond the process."""
        self.forget()
        return False

    def close(self) -> None:
        """End the process."""
        if self._client is not None:
            self._client.close()

    def _running(self) -> EngineClient:
        if self._client is None or self._client.pid is None:  # a fresh one would have an empty cache
            raise EngineDied("The engine's process is gone: what it was to compute is not measured.")
        return self._client


def _answer(answers: Sequence[Finished], user: Times) -> Answer:
    """Of n answers, the first one's prompt is told: the others find it in the cache."""
    first = answers[0].stats
    return Answer(
        token_ids=tuple(answer.token_ids for answer in answers),
        texts=tuple(answer.text for answer in answers),
        generated_tokens=sum(answer.stats.generated_tokens for answer in answers),
        user=user,
        engine=Times(first.ttft_s, max(answer.stats.ttft_s + answer.stats.decode_s for answer in answers)),
        prefill_s=first.prefill_s,
        prompt_tokens=first.prompt_tokens,
        reused_tokens=first.reused_tokens,
        computed_tokens=first.computed_tokens,
        guessed_tokens=sum(answer.stats.accepted_tokens for answer in answers),
        kv=answers[-1].kv,
    )
