"""ContiguousEngine: llama.cpp's own cache behind the engine interface.

It is the baseline that the paged engine is compared with, and it runs every model that llama.cpp runs.
One sequence at a time has the whole window; a new prompt reuses the beginning that it has in common with
what the cache holds, as llama-cpp-python does; it may keep the states of other prompts too, as llama-server does.
Requests wait in line, interactive ones first.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.config import EngineConfig
from engine.errors import OctavoError, StepFailed
from engine.interface import Event
from engine.interrupt import StepInterrupted
from engine.llama_context import CHUNK, LlamaContext
from engine.prompt_states import PromptStates
from engine.requests import check_request
from engine.sampling import Sampler, check_sampling
from engine.sequence import (
    FinishReason,
    KvStats,
    PrefillEvent,
    Request,
    Sequence,
    SequenceStatus,
    TokenEvent,
)
from engine.survey import PoolSurvey


class ContiguousEngine:
    """The Engine interface over llama_decode. The n answers of a request are computed one after the other."""

    name = "contiguous"

    def __init__(
        self, path: str, config: EngineConfig, progress: Callable[[float], None], *, flash: bool | None = None
    ) -> None:
        """Load the model file at `path` and reserve its whole window.

        progress: receives the fraction that is done, from 0 to 1. flash: flash attention on or off; None is
        llama.cpp's choice. Raises ModelFileError, UnsupportedModel, UnsupportedKvType, MemoryLimitError or DeviceError.
        """
        self._llama = LlamaContext(path, config, progress, flash=flash)
        self.context = self._llama.context
        self.context_train = self._llama.context_train
        self._states = PromptStates(config.state_cache_bytes)
        self._waiting: list[Sequence] = []
        self._running: Sequence | None = None
        self._sampler: Sampler | None = None
        self._n_requests = self._n_sequences = 0

    def submit(self, request: Request) -> int:
        """Queue a request and return its id.

        Raises PromptError when the prompt is empty or too long, no answer is asked for, or a sampling setting
        has no meaning.
        """
        check_request(request, self.context)
        check_sampling(request.sampling)
        self._n_requests += 1
        for index in range(request.n):
            self._n_sequences += 1
            self._waiting.append(
                Sequence(
                    sequence_id=self._n_sequences,
                    request_id=self._n_requests,
                    index=index,
                    request=request,
                    token_ids=list(request.prompt),
                    tables=(),
                    submitted_at=time.monotonic(),
                )
            )
        return self._n_requests

    def step(self) -> list[Event]:
        """Compute one chunk of a prompt, or one token; returns what it produced, nothing if it was interrupted.

        Raises StepFailed when llama.cpp finds no memory for it, or the model's output is not a number.
        """
        sequence = self._running or self._start_next()
        if sequence is None:
            return []
        try:
            return self._advance(sequence)
        except StepInterrupted:
            sequence.n_computed = len(self._llama.held)
            return []
        except OctavoError as error:
            self.cancel(sequence.request_id)
            raise StepFailed(error, frozenset([sequence.request_id])) from error

    def interrupt(self) -> None:
        """See Engine.interrupt."""
        self._llama.interrupt.set()

    def cancel(self, request_id: int, index: int | None = None) -> list[Event]:
        """End all answers of a request, or one of them; what was computed stays in the cache."""
        live = [*self._waiting, *([self._running] if self._running else [])]
        return [
            self._finish(sequence, FinishReason.CANCELLED)
            for sequence in live
            if sequence.request_id == request_id and index in (None, sequence.index)
        ]

    def has_work(self) -> bool:
        """Whether an answer is running or waiting."""
        return bool(self._running or self._waiting)

    def kv_stats(self) -> KvStats:
        """KV memory now, with one token as the block; what the last sequence left, and saved states, are cached.

        States come on top of the window.
        """
        n_held = len(self._llama.held)
        n_saved = self._states.n_tokens
        n_used = n_held if self._running else 0
        reserved = self._llama.bytes_reserved
        return KvStats(
            block_size=1,
            block_bytes=self._llama.bytes_per_token,
            blocks_total=self.context + n_saved,
            blocks_used=n_used,
            blocks_cached=n_held - n_used + n_saved,
            bytes_used=min(n_used * self._llama.bytes_per_token, reserved),
            bytes_resident=reserved + self._states.n_bytes,
            bytes_contiguous_would_reserve=reserved,
            type_k=self._llama.types.k,
            type_v=self._llama.types.v,
        )

    def survey(self) -> PoolSurvey:
        """KV memory now; there are no blocks."""
        kv = self.kv_stats()
        return PoolSurvey(kv, tokens_cached=kv.blocks_cached * kv.block_size)

    def close(self) -> None:
        """Free native memory; harmless when done already."""
        self._waiting.clear()
        self._leave()
        self._states.clear()
        self._llama.close()

    def _start_next(self) -> Sequence | None:
        """Give the window to the first waiting sequence of the most urgent class."""
        if not self._waiting:
            return None
        sequence = min(self._waiting, key=lambda waiting: waiting.rank)
        self._waiting.remove(sequence)
        self._running = sequence
        self._sampler = Sampler(
            sequence.request.sampling, self._llama.n_vocab, index=sequence.index, history=sequence.request.prompt
        )
        sequence.status = SequenceStatus.RUNNING
        sequence.prefill_at = time.monotonic()
        self._states.switch(self._llama, sequence.token_ids)
        sequence.n_computed = sequence.n_reused = self._llama.reuse_prefix(sequence.token_ids)
        return sequence

    def _advance(self, sequence: Sequence) -> list[Event]:
        """Compute the next chunk of what is known of the sequence, and the next token after the last chunk."""
        chunk = sequence.token_ids[sequence.n_computed : sequence.n_computed + CHUNK]
        logits = self._llama.decode(chunk)
        in_prompt = sequence.n_computed < sequence.n_prompt
        sequence.n_computed += len(chunk)
        events: list[Event] = []
        if in_prompt:
            progress = PrefillEvent(sequence.request_id, sequence.n_computed, sequence.n_prompt, sequence.n_reused)
            events.append(progress)
        if sequence.n_computed == len(sequence.token_ids):
            events.append(self._next_token(sequence, logits))
        return events

    def _next_token(self, sequence: Sequence, logits: npt.NDArray[np.float32]) -> TokenEvent:
        """Draw a token and say whether it ends the answer."""
        assert self._sampler is not None
        token = self._sampler.sample(logits)
        now = time.monotonic()
        sequence.first_token_at = sequence.first_token_at or now
        if token in sequence.request.stop_tokens:
            return self._finish(sequence, FinishReason.STOP)
        sequence.token_ids.append(token)
        sequence.last_token_at = now
        if len(sequence.token_ids) == self.context or sequence.n_generated == sequence.request.max_tokens:
            return self._finish(sequence, FinishReason.LENGTH, token)
        return TokenEvent(sequence.request_id, sequence.index, token)

    def _finish(self, sequence: Sequence, reason: FinishReason, token: int | None = None) -> TokenEvent:
        """Take a sequence out; returns its terminal event, which carries its last token if there is one."""
        if sequence is self._running:
            self._leave()
        else:
            self._waiting.remove(sequence)
        sequence.status = SequenceStatus.FINISHED
        return TokenEvent(sequence.request_id, sequence.index, token, reason, sequence.stats(sequence.n_computed))

    def _leave(self) -> None:
        """End the running sequence's hold on the window."""
        if self._sampler is not None:
            self._sampler.close()
        self._running = self._sampler = None
