"""What quantizing a model has cost: a short text through both files, and how far their predictions are apart.

Perplexity is exp of the mean negative log-probability of the text's own next token: how surprised a model is. The
Kullback-Leibler divergence, sum p (log p - log q) in nats, says how far the quantized model's distribution q is from
the source's p, whatever the text; 0 is no difference at all.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.config import EngineConfig
from engine.llama_context import CHUNK, LlamaContext
from engine.tokenizer import Tokenizer
from models.errors import QuantizeError
from models.quantization.plan import Compare, Step
from models.quantization.quality_text import TEXT

N_TOKENS = 512
"""Of the text at most; llama.cpp's own measure uses windows of as many."""

_LOGITS = 64 * 2**20
"""Bytes of the logits that each model holds at once. More tokens at a time are faster, and read weights that do not fit
in memory fewer times from the disk.
"""
_ROWS = 4
"""Of these, so many at a time are computed with in float64."""


_MOST_NATS = 100
"""Of a prediction; of a vocabulary of a million tokens, drawing one by lot has 14."""


class Quality(NamedTuple):
    """Over `n_predictions`: perplexity of the source and of the quantized model; mean divergence in nats;
    agreement, how often, from 0 to 1, both find the same token likeliest.
    """

    source_perplexity: float
    made_perplexity: float
    divergence: float
    agreement: float
    n_predictions: int


class Differences:
    """Sums up how two models predict the same tokens."""

    def __init__(self) -> None:
        self._nats = np.zeros(2)
        self._divergence = 0.0
        self._same = 0
        self._n = 0

    def add(self, source: npt.NDArray[np.float32], made: npt.NDArray[np.float32], following: Sequence[int]) -> None:
        """Logits of both models, [n, vocabulary], and the n tokens that follow in the text; n may be 0."""
        for first in range(0, len(following), _ROWS):
            rows = slice(first, min(first + _ROWS, len(following)))
            tokens = np.asarray(following[rows])
            p, q = _log_probabilities(source[rows]), _log_probabilities(made[rows])
            places = np.arange(len(tokens)), tokens
            self._nats -= p[places].sum(), q[places].sum()
            self._divergence += float((np.exp(p) * (p - q)).sum())
            self._same += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
            self._n += len(tokens)

    def result(self) -> Quality:
        """Of all that was added, which is at least one prediction.

        Raises QuantizeError when a model's predictions are no numbers, or so bad that their perplexity is none.
        """
        source, made = (float(nats) / self._n for nats in self._nats)
        for which, nats in (("source", source), ("quantized model", made)):
            if not nats < _MOST_NATS:  # nor is a NaN
                raise QuantizeError(
                    f"The predictions of the {which} cannot be compared: they are no numbers, or far from any text."
                )
        return Quality(math.exp(source), math.exp(made), self._divergence / self._n, self._same / self._n, self._n)


def _log_probabilities(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def compare(job: Compare, on_step: Callable[[Step], object]) -> Quality:
    """Compute the text with both models, side by side on the CPU, so that their logits never have to be stored.

    Raises what Tokenizer and LlamaContext raise, and QuantizeError when the model's window is too short.
    """
    tokenizer = Tokenizer(str(job.source))
    tokens = tokenizer.encode_raw(TEXT)[: min(N_TOKENS, tokenizer.context_train or N_TOKENS)]
    tokenizer.close()
    if len(tokens) < 2:
        raise QuantizeError("The model's context is too short to compare predictions.")
    config = EngineConfig(context=len(tokens), threads=job.threads, device="CPU")
    size = max(1, min(CHUNK, _LOGITS // (4 * tokenizer.n_vocab)))
    differences = Differences()
    with contextlib.ExitStack() as stack:
        models = []
        for path in (job.source, job.made):
            models.append(LlamaContext(str(path), config, lambda _: None, may_exceed_memory=True))
            stack.callback(models[-1].close)
        source, made = models
        for first in range(0, len(tokens), size):
            on_step(Step(first, len(tokens), "predictions"))
            chunk = tokens[first : first + size]
            differences.add(
                source.decode_all(chunk), made.decode_all(chunk), tokens[first + 1 : first + 1 + len(chunk)]
            )
    return differences.result()
