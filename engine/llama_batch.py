"""Several sequences in one contiguous cache of llama.cpp, decoded together: what a batch costs without pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.config import EngineConfig, KvType
from engine.devices import find_device
from engine.errors import MemoryLimitError
from engine.gguf_file import GgufFile
from engine.kv_types import KvTypes
from engine.llama_context import CHUNK, bytes_of, kv_bytes_per_token, load_model, new_context
from engine.memory import available_memory, choose_context
from engine.native import LOG_ERROR, captured_log, llama, reason_in
from engine.prompt_states import State
from engine.sampling import Sampler
from engine.sequence import SamplingParams

_GREEDY = SamplingParams(temperature=0)


class LlamaBatch:
    """Owns llama.cpp's model and a context. The next tokens are drawn greedily.

    context: the llama_context, for those who put tokens in place. n_vocab: number of token ids.
    """

    def __init__(
        self, path: str, config: EngineConfig, progress: Callable[[float], None], *, n_sequences: int, unified: bool
    ) -> None:
        """Load the model file at `path` and reserve `config.context` tokens for all sequences together.

        progress: receives the fraction that is loaded. n_sequences: the most that run together.
        unified: whether they are all in one cache; otherwise each has a fixed share. config.flash: see LlamaContext.
        Raises ModelFileError, UnsupportedModel, UnsupportedKvType, MemoryLimitError or DeviceError.
        """
        self._model = self.context = None
        self._batch: Any = None  # struct llama_batch
        self._samplers: list[Sampler] = []
        file = GgufFile.open(path)
        types = KvTypes(config.kv_type, KvType.F16 if config.flash is False else config.kv_type)
        self._model = load_model(file, find_device(config.device), progress)
        try:
            trained = llama.llama_model_n_ctx_train(self._model)
            token_bytes = max(1, kv_bytes_per_token(file, types))
            n_tokens = choose_context(config.context, trained, token_bytes, available_memory())
            self.context, _ = new_context(
                self._model,
                n_tokens,
                types,
                config.threads,
                config.flash,
                n_sequences=n_sequences,
                unified=unified,
            )
            self._memory = llama.llama_get_memory(self.context)
            self._batch = llama.llama_batch_init(CHUNK, 0, 1)
            self.n_vocab: int = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
            for _ in range(n_sequences):
                self._samplers.append(Sampler(_GREEDY, self.n_vocab, index=0, history=()))
        except BaseException:
            self.close()
            raise

    def forget(self) -> None:
        """Empty the cache."""
        llama.llama_memory_clear(self._memory, False)

    def compute(self, sequence: int, tokens: Sequence[int]) -> State:
        """Compute the beginning of a sequence in an empty cache; returns its state. Raises MemoryLimitError."""
        self.forget()
        batch = self._batch
        for start in range(0, len(tokens), CHUNK):
            chunk = tokens[start : start + CHUNK]
            batch.n_tokens = len(chunk)
            for i, token in enumerate(chunk):
                batch.token[i], batch.pos[i] = token, start + i
                batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, sequence, i == len(chunk) - 1
            self._decode()
        state = np.empty(llama.llama_state_seq_get_size(self.context, sequence), np.uint8)
        llama.llama_state_seq_get_data(self.context, bytes_of(state), state.nbytes, sequence)
        return state

    def restore(self, sequence: int, state: State) -> None:
        """Let a sequence be what it was when `compute` returned the state."""
        read = llama.llama_state_seq_set_data(self.context, bytes_of(state), state.nbytes, sequence)
        if read != state.nbytes:
            raise MemoryLimitError(f"llama.cpp has no room for sequence {sequence + 1}: use a smaller --context.")

    def start(self, tokens: Sequence[int], position: int) -> None:
        """The tokens that the next step computes: of sequence i the i-th one, all at the same position."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, i, 1

    def step(self) -> list[int]:
        """Compute one token of every sequence that was started; returns the next ones. Raises MemoryLimitError."""
        batch = self._batch
        self._decode()
        drawn = []
        for i in range(batch.n_tokens):
            logits = llama.llama_get_logits_ith(self.context, i)
            drawn.append(self._samplers[i].sample(np.ctypeslib.as_array(logits, (self.n_vocab,))))
            batch.token[i] = drawn[-1]
            batch.pos[i] += 1
        return drawn

    def close(self) -> None:
        """Free native memory; harmless when done already."""
        while self._samplers:
            self._samplers.pop().close()
        if self._batch:
            llama.llama_batch_free(self._batch)
        if self.context:
            llama.llama_free(self.context)
        if self._model:
            llama.llama_model_free(self._model)
        self._model = self.context = self._batch = None

    def _decode(self) -> None:
        with captured_log(LOG_ERROR) as log:
            status = llama.llama_decode(self.context, self._batch)
        if status != 0:
            raise MemoryLimitError(
                f"llama.cpp could not compute a batch of {self._batch.n_tokens} tokens{reason_in(log)}: use a smaller "
                "--context or model."
            )
