"""Tokens into text as they come: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from engine.errors import PromptError
from engine.tokenizer import Tokenizer


class Detokenizer:
    """The text of one answer, made from its tokens one by one.

    A character may be spread over several tokens and a stop string too, so text comes out when it is certain: an
    incomplete character and an end that may grow into a stop string are held back. The answer ends where a stop
    string is first complete; if several end at that character, the longest counts. How the text was cut into
    tokens makes no difference. Bytes that are no UTF-8 become U+FFFD.

    stopped: a stop string was met; text from its start on is never returned.

    Raises PromptError for an empty stop string.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str] = ()):
        if "" in stop:
            raise PromptError("A stop string is empty: leave it out, or write the text at which the answer ends.")
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        self._longest = max(map(len, stop), default=0)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, token_id: int) -> str:
        """Take the next token; returns the text that has become certain, "" once stopped."""
        if self.stopped:
            return ""
        text = self._held + self._decoder.decode(self._tokenizer.piece(token_id))
        ends = [(start + len(stop), start) for stop in self._stop if (start := text.find(stop)) >= 0]
        if ends:
            self.stopped = True
            self._held = ""
            return text[: min(ends)[1]]
        certain = len(text) - self._possible_stop(text)
        self._held = text[certain:]
        return text[:certain]

    def finish(self) -> str:
        """The text that was held back, when no token follows; the bytes of an incomplete character are dropped."""
        held, self._held = self._held, ""
        return held

    def _possible_stop(self, text: str) -> int:
        """Length of the longest end of `text` with which a stop string begins."""
        for length in range(min(len(text), self._longest - 1), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stop):
                return length
        return 0
