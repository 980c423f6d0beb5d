"""Engines that decode several sequences together, in the process that calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from app.compare.lanes import BatchTest
from engine.config import EngineConfig
from engine.errors import MemoryLimitError
from engine.gguf_file import GgufFile
from engine.llama_batch import LlamaBatch
from engine.paged import PagedEngine
from engine.plan import ModelPlan
from engine.prompt_states import State
from engine.sequence import Request, SamplingParams, TokenEvent

_GREEDY = SamplingParams(temperature=0)


class BatchEngine(Protocol):
    """Runs one test at a time. Its methods raise OctavoError."""

    def begin(self, test: BatchTest) -> None:
        """Bring every sequence to its first token."""

    def finish(self) -> None:
        """Compute the other tokens of the test that was begun."""

    def close(self) -> None:
        """Free native memory."""


class PagedBatch:
    """The paged engine. What a test knows stays in the prefix cache for the next one."""

    def __init__(self, path: str, config: EngineConfig, progress: Callable[[float], None]) -> None:
        """config.context: tokens of all sequences together. Raises what PagedEngine raises."""
        self._vocabulary = ModelPlan.from_gguf(GgufFile.open(path)).vocabulary
        self._engine = PagedEngine(path, config, progress, speculate=False)
        self._test = BatchTest(0, 0, 0)

    def begin(self, test: BatchTest) -> None:
        """See BatchEngine."""
        self._test = test
        prompts = [random_ids(i, test.depth + 1, self._vocabulary) for i in range(test.n_sequences)]
        for prompt in prompts:  # one after the other, as llama.cpp's
            self._engine.submit(Request(prompt, _GREEDY, 1))
            self._run()
        waiting = {self._engine.submit(Request(prompt, _GREEDY, test.n_tokens + 1)) for prompt in prompts}
        while waiting:
            waiting -= {event.request_id for event in self._engine.step() if isinstance(event, TokenEvent)}

    def finish(self) -> None:
        """See BatchEngine. Raises MemoryLimitError when not all sequences ran together."""
        test = self._test
        if self._run() != test.n_sequences * test.n_tokens:
            raise MemoryLimitError(
                f"The paged engine's memory does not hold {test.n_sequences} sequences of "
                f"{test.depth + test.n_tokens:,} tokens: compare smaller batches."
            )

    def close(self) -> None:
        """See BatchEngine."""
        self._engine.close()

    def _run(self) -> int:
        """Until nothing is left to do; returns how many tokens came."""
        n_tokens = 0
        while self._engine.has_work():
            n_tokens += sum(isinstance(event, TokenEvent) for event in self._engine.step())
        return n_tokens


class LlamaCppBatch:
    """llama.cpp. What a test knows is kept as one state per sequence, and put in place before the next one."""

    def __init__(
        self, path: str, config: EngineConfig, progress: Callable[[float], None], *, n_sequences: int, unified: bool
    ) -> None:
        """See LlamaBatch."""
        self._llama = LlamaBatch(path, config, progress, n_sequences=n_sequences, unified=unified)
        self._test = BatchTest(0, 0, 0)
        self._states: list[State] = []
        self._depth = 0

    def begin(self, test: BatchTest) -> None:
        """See BatchEngine."""
        self._test = test
        prompts = [random_ids(i, test.depth + 1, self._llama.n_vocab) for i in range(test.n_sequences)]
        if test.depth != self._depth:
            self._states.clear()
            self._depth = test.depth
        if test.depth:
            for i in range(len(self._states), test.n_sequences):
                self._states.append(self._llama.compute(i, prompts[i][:-1]))
        self._llama.forget()
        for i, state in enumerate(self._states[: test.n_sequences]):
            self._llama.restore(i, state)
        self._llama.start([prompt[-1] for prompt in prompts], test.depth)
        self._llama.step()

    def finish(self) -> None:
        """See BatchEngine."""
        for _ in range(self._test.n_tokens):
            self._llama.step()

    def close(self) -> None:
        """See BatchEngine."""
        self._llama.close()


def random_ids(sequence: int, n: int, vocabulary: int) -> tuple[int, ...]:
    """The first n tokens of a sequence."""
    return tuple(np.random.default_rng(sequence).integers(0, vocabulary, n).tolist())
