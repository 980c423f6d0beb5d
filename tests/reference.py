"""The independent oracle: logits of llama.cpp's own graph and cache, through llama_decode."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from engine.native import llama

F32, F16, Q8_0 = 0, 1, 8
"""Types of the KV cache (enum ggml_type)."""


class LlamaDecode:
    """llama_decode of one sequence, in one process with the code under test.

    flash: flash attention. kv_type: of keys and values; v_type: of the values where it is another one, as it must be
    for Q8_0 without flash attention. extra_bufts: let llama.cpp repack weights for this CPU, which changes the order
    of additions.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        n_ctx: int = 256,
        flash: bool = False,
        kv_type: int = F32,
        v_type: int | None = None,
        threads: int = 1,
        extra_bufts: bool = False,
    ) -> None:
        model_params = llama.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = extra_bufts
        self._model = llama.llama_model_load_from_file(os.fsencode(path), model_params)
        if not self._model:
            raise ValueError(f"llama.cpp does not load {path}")
        params = llama.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = int(flash)
        params.type_k, params.type_v = kv_type, kv_type if v_type is None else v_type
        self._context = llama.llama_init_from_model(self._model, params)
        if not self._context:
            llama.llama_model_free(self._model)
            raise ValueError(f"llama.cpp makes no context for {path}")
        self._batch = llama.llama_batch_init(n_ctx, 0, 1)
        self.n_vocab = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))

    def decode(self, tokens: Sequence[int], start: int = 0, *, last_only: bool = False) -> np.ndarray:
        """Compute tokens at positions start, start + 1, …; returns their logits, [n_tokens, n_vocab].

        Positions from `start` on are forgotten first, so any position can be computed again. last_only: logits of
        the last token alone, [1, n_vocab]; the last layer then computes one row, which adds up in another order.
        """
        llama.llama_memory_seq_rm(llama.llama_get_memory(self._context), 0, start, -1)
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, start + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, not last_only
        batch.logits[len(tokens) - 1] = 1
        status = llama.llama_decode(self._context, batch)
        if status != 0:
            raise ValueError(f"llama_decode returned {status}")
        rows = [llama.llama_get_logits_ith(self._context, i) for i in range(len(tokens)) if batch.logits[i]]
        return np.stack([np.ctypeslib.as_array(row, (self.n_vocab,)).copy() for row in rows])

    def close(self) -> None:
        llama.llama_batch_free(self._batch)
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def __enter__(self) -> LlamaDecode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
