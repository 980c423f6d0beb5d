"""Draft tokens found in the text itself: an answer that quotes or edits its prompt goes on as the prompt did.

Prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding; "ngram" speculation in vLLM): the
last few tokens are looked up among all earlier ones, and what followed them there is the draft.
"""

from __future__ import annotations

from collections.abc import Sequence

NGRAMS = (3, 2)
"""Lengths of the token strings that are looked up, the longest first."""

LONGEST = 16
"""A place that is found is compared with the present so many tokens back."""


class PromptLookup:
    """Index of all n-grams of one growing sequence, and the place where its latest tokens stood before.

    While new tokens are those that followed there, the place moves along with them, so that a quotation is followed
    to its end; when one differs, the latest earlier occurrence of the longest n-gram is the new place. A new token
    costs some microseconds, a long prompt a third of a microsecond per token.
    """

    def __init__(self, token_ids: Sequence[int]) -> None:
        """Follow `token_ids`, which its owner extends at the end."""
        self._token_ids = token_ids
        self._n_seen = 0
        self._ends: tuple[dict[tuple[int, ...], int], ...] = tuple({} for _ in NGRAMS)
        """Per length: the index behind the latest occurrence of each n-gram."""
        self._source = 0
        """The index behind the place, where the token stands that should come next."""
        self.n_matched = 0
        """How many tokens before the place are the latest ones, 0 if there is no place; found counts to LONGEST."""

    def update(self) -> None:
        """Take in the tokens that were added since the last call."""
        token_ids, n = self._token_ids, len(self._token_ids)
        if n == self._n_seen:
            return
        for i in range(self._n_seen, n):
            if self.n_matched and token_ids[self._source] == token_ids[i]:
                self._source += 1
                self.n_matched += 1
            else:
                self.n_matched = 0
        self._index(self._n_seen + 1, n - 1)
        if not self.n_matched:
            self._look_up()
        self._index(n, n)
        self._n_seen = n

    def draft(self, n_tokens: int) -> tuple[int, ...]:
        """The next `n_tokens` tokens, as they followed there; () if there is no such place.

        Where the earlier text reaches the present, the draft repeats it: what has a period goes on with it.
        """
        if not self.n_matched:
            return ()
        known = self._token_ids[self._source : self._source + n_tokens]
        return tuple(known[i % len(known)] for i in range(n_tokens))

    def _index(self, first: int, last: int) -> None:
        """Add the n-grams that end behind the tokens `first` to `last`, counted from 1."""
        for n, ends in zip(NGRAMS, self._ends, strict=True):
            begin = max(0, first - n)
            if begin + n <= last:
                columns = [self._token_ids[begin + i : last - n + 1 + i] for i in range(n)]
                ends.update(zip(zip(*columns, strict=True), range(begin + n, last + 1), strict=True))

    def _look_up(self) -> None:
        token_ids, n_tokens = self._token_ids, len(self._token_ids)
        for n, ends in zip(NGRAMS, self._ends, strict=True):
            source = ends.get(tuple(token_ids[-n:]))
            if source is not None:
                self._source, self.n_matched = source, n
                while self.n_matched < min(source, LONGEST):
                    if token_ids[source - 1 - self.n_matched] != token_ids[n_tokens - 1 - self.n_matched]:
                        break
                    self.n_matched += 1
                return
