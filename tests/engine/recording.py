"""A paged engine that follows a script of tokens and keeps the logits it would have drawn them from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as SequenceOf
from pathlib import Path
from typing import Any

import numpy as np

from engine.config import EngineConfig, KvType
from engine.paged import PagedEngine
from engine.sequence import Request, SamplingParams, Sequence, TokenEvent


class RecordingEngine(PagedEngine):
    """script: the tokens each request is to "draw". rows: the logits seen, per (request id, answer)."""

    def __init__(
        self, path: Path, *, context: int = 256, threads: int = 1, kv_type: KvType = KvType.F16, **options: Any
    ) -> None:
        config = EngineConfig(context=context, threads=threads, device="CPU", kv_type=kv_type)
        super().__init__(str(path), config, lambda _fraction: None, **options)
        self.script: dict[int, list[int]] = {}
        self.rows: dict[tuple[int, int], list[np.ndarray]] = defaultdict(list)
        self.drawn: dict[tuple[int, int], list[int]] = defaultdict(list)

    def follow(self, prompt: SequenceOf[int], answer: SequenceOf[int], n: int = 1) -> int:
        """Submit a prompt whose answer is already known."""
        request = Request(tuple(prompt), SamplingParams(temperature=0), max_tokens=len(answer), n=n)
        request_id = self.submit(request)
        self.script[request_id] = list(answer)
        return request_id

    def greedy(self, prompt: SequenceOf[int], n_tokens: int) -> int:
        """Submit a prompt and let the engine choose the likeliest tokens."""
        return self.submit(Request(tuple(prompt), SamplingParams(temperature=0), max_tokens=n_tokens))

    def run(self) -> None:
        """Step until nothing is left to do."""
        while self.has_work():
            for event in self.step():
                if isinstance(event, TokenEvent) and event.token_id is not None:
                    self.drawn[event.request_id, event.index].append(event.token_id)

    def logits(self, request_id: int, index: int = 0) -> np.ndarray:
        """The rows of one answer, [n_tokens, vocabulary]."""
        return np.stack(self.rows[request_id, index])

    def _sample(self, sequence: Sequence, logits: np.ndarray) -> int:
        drawn = super()._sample(sequence, logits)
        self.rows[sequence.request_id, sequence.index].append(logits.copy())
        script = self.script.get(sequence.request_id)
        return script[len(self.rows[sequence.request_id, sequence.index]) - 1] if script else drawn
