"""States of whole sequences, kept in RAM while the contiguous cache holds another one.

It is what llama-server does for users who switch between chats (prompt_save, prompt_load and get_available_slot in
tools/server of llama.cpp), with one slot and its default thresholds. Each state is a full copy: chats that begin alike
store the beginning once each. Checkpoints, which llama-server adds for models that cannot step back, are not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

_ALIKE = 0.1
"""A prompt that has no more than this part in common with the cache is another chat's (--slot-prompt-similarity)."""
_MOSTLY_LOST = 0.5
"""The cache is saved before it loses more than this part of what it holds."""
_WORTH_RESTORING = 0.25
"""Part of a state that the new prompt must have in common with it: less would be thrown away with the rest."""

State = npt.NDArray[np.uint8]


class StateHolder(Protocol):
    """A contiguous cache for one sequence. held: token ids whose K and V it has, in position order."""

    held: list[int]

    def state_bytes(self) -> int:
        """Size of what `save_state` would write."""

    def save_state(self, state: State) -> None:
        """Write the sequence into an array of `state_bytes`."""

    def restore_state(self, state: State, tokens: Sequence[int]) -> None:
        """Replace the sequence by the saved one of these tokens; it is empty if that cannot be done."""


class _Saved(NamedTuple):
    tokens: list[int]
    state: State


class PromptStates:
    """Owns the saved states, oldest first. A state that is restored is no longer saved: the cache has it."""

    def __init__(self, limit: int) -> None:
        """limit: bytes of all states together, 0 to keep none."""
        self._limit = limit
        self._saved: list[_Saved] = []

    @property
    def n_tokens(self) -> int:
        """Tokens in all states; what two of them share counts twice, as it is stored twice."""
        return sum(len(saved.tokens) for saved in self._saved)

    @property
    def n_bytes(self) -> int:
        """Memory that the states take."""
        return sum(saved.state.nbytes for saved in self._saved)

    def switch(self, cache: StateHolder, prompt: Sequence[int]) -> None:
        """Before `prompt` runs: save what the cache would lose, and restore what fits the prompt better."""
        if not self._limit:
            return
        shared = common_length(cache.held, prompt)
        is_alike = shared > _ALIKE * len(prompt)
        if is_alike and shared >= _MOSTLY_LOST * len(cache.held):
            return
        self._save(cache)
        self._restore(cache, prompt)

    def clear(self) -> None:
        """Give the memory back."""
        self._saved.clear()

    def _save(self, cache: StateHolder) -> None:
        """Unless a state begins with all of it. It takes the place of those that it begins with, and of the oldest."""
        held = cache.held
        if not held or any(common_length(saved.tokens, held) == len(held) for saved in self._saved):
            return
        n_bytes = cache.state_bytes()
        if n_bytes > self._limit:
            return
        self._saved = [saved for saved in self._saved if common_length(saved.tokens, held) < len(saved.tokens)]
        while self.n_bytes + n_bytes > self._limit:
            del self._saved[0]
        try:
            state = np.empty(n_bytes, np.uint8)
        except MemoryError:  # nothing is lost but time
            return
        cache.save_state(state)
        self._saved.append(_Saved(list(held), state))

    def _restore(self, cache: StateHolder, prompt: Sequence[int]) -> None:
        """The state that has more in common with the prompt than the cache has, and would lose a smaller part."""
        shared = common_length(cache.held, prompt)
        kept = shared / len(cache.held) if cache.held else -1.0
        best: _Saved | None = None
        for saved in self._saved:
            saved_shared = common_length(saved.tokens, prompt)
            saved_kept = saved_shared / len(saved.tokens)
            if saved_kept >= _WORTH_RESTORING and saved_kept > kept and saved_shared > shared:
                best, shared, kept = saved, saved_shared, saved_kept
        if best is not None:
            self._saved = [saved for saved in self._saved if saved is not best]
            cache.restore_state(best.state, best.tokens)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of tokens that both begin with."""
    most = min(len(a), len(b))
    return next((i for i in range(most) if a[i] != b[i]), most)
