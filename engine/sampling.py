"""The next token, drawn from logits by llama.cpp's samplers."""

from __future__ import annotations

import ctypes
import math
import secrets
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import ModelFileError, PromptError
from engine.native import llama
from engine.printable import quoted
from engine.sequence import SamplingParams

PENALTY_WINDOW = 64
"""The latest tokens, of prompt and answer together, to which the repeat penalty applies (llama.cpp's default)."""

COLDEST = 1e-4
"""Temperatures below this are greedy: they would only decide between equals, and overflow in single precision."""

_SEEDS = 2**32 - 1
"""llama.cpp takes the number 2**32 - 1 itself for "no seed"."""

_KEEP_AT_LEAST = 1

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
"""struct llama_token_data."""


_SETTINGS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "temperature": ("a number from 0 (greedy) to 100", lambda value: 0 <= value <= 100),
    "top_k": ("a whole number from 0 (off) up", lambda value: isinstance(value, int) and value >= 0),
    "top_p": ("a number above 0 and at most 1 (off)", lambda value: 0 < value <= 1),
    "min_p": ("a number from 0 (off) to 1", lambda value: 0 <= value <= 1),
    "repeat_penalty": ("a number from 0.01 to 100 (1 is off)", lambda value: 0.01 <= value <= 100),
    "seed": ("a whole number from 0 up", lambda value: isinstance(value, int) and value >= 0),
}
"""For each field of SamplingParams what it may be, in words and as a test."""


def check_sampling(params: SamplingParams) -> None:
    """Raise PromptError for a setting that has no meaning."""
    for name, (wanted, accepts) in _SETTINGS.items():
        value = getattr(params, name)
        if name == "seed" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not accepts(value):
            raise PromptError(f"The setting {name} is {quoted(str(value), 40)}: give {wanted}.")


class Sampler:
    """Draws the tokens of one answer.

    The order is llama.cpp's: repeat penalty, top-k, top-p, min-p, temperature, draw. Answers with the same seed and
    index draw alike; the n answers to one request share its seed and differ by their index. Without a seed every
    sampler has its own.

    n_vocab: length of the logits. history: the tokens so far, for the repeat penalty.

    Raises PromptError for settings that have no meaning.
    """

    def __init__(self, params: SamplingParams, n_vocab: int, *, index: int = 0, history: Sequence[int] = ()):
        check_sampling(params)
        greedy = params.temperature < COLDEST
        chain = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
        self._free = weakref.finalize(self, llama.llama_sampler_free, chain)
        self._chain = chain
        self._is_argmax = greedy and params.repeat_penalty == 1
        penalties = (n_vocab, PENALTY_WINDOW, params.repeat_penalty, 0.0, 0.0)
        llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_penalties(*penalties))
        if greedy:
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_greedy())
        else:
            seed = secrets.randbelow(_SEEDS) if params.seed is None else (params.seed + index) % _SEEDS
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_top_k(min(params.top_k, n_vocab)))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_top_p(params.top_p, _KEEP_AT_LEAST))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_min_p(params.min_p, _KEEP_AT_LEAST))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_temp(params.temperature))
            llama.llama_sampler_chain_add(chain, llama.llama_sampler_init_dist(seed))
        for token_id in history[-PENALTY_WINDOW:]:
            llama.llama_sampler_accept(chain, token_id)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._candidates = np.empty(n_vocab, _CANDIDATE)
        self._array = llama.llama_token_data_array()
        self._array_pointer = ctypes.byref(self._array)
        self._data = self._candidates.ctypes.data_as(llama.llama_token_data_p)

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """Draw the next token from logits of shape [n_vocab], which are left as they are.

        The repeat penalty counts it from the next call on. Raises ModelFileError for logits that are no numbers.
        """
        best = int(logits.argmax())  # a NaN, if there is one
        if not math.isfinite(logits[best]):
            raise ModelFileError(
                "The model's output is not a number: its file may be damaged, or this device computes it wrongly."
            )
        if self._is_argmax:
            return best
        self._candidates["id"] = self._ids
        self._candidates["logit"] = logits
        array = self._array
        array.data, array.size, array.selected, array.sorted = self._data, len(logits), -1, False
        llama.llama_sampler_apply(self._chain, self._array_pointer)
        token_id = int(array.data[array.selected].id)
        llama.llama_sampler_accept(self._chain, token_id)
        return token_id

    def close(self) -> None:
        """Free the native samplers; harmless when done already. The sampler must not be used afterwards."""
        self._free()
