"""Answers in the pieces in which servers with OpenAI's interface stream them.

Each event is a JSON object. Servers agree on `choices`, and differ around them: llama-server adds `timings`, and the
usage of each of several answers; vLLM and Ollama send one `usage` in an event of its own; vLLM and Ollama name what a
model thinks `reasoning`, llama-server `reasoning_content`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_THOUGHTS_AND_TEXT = ("reasoning_content", "reasoning", "content")
_END = "[DONE]"
_OTHER_FORMAT = "answers in another format than OpenAI's"


class BadStream(Exception):
    """What came is no answer; the message goes on with a sentence that begins with the server's name."""


class StreamedAnswers:
    """The answers to one request. first_at: when the first text of any of them came, 0 before that.

    n_pieces: pieces of text that came, about one a token.
    """

    def __init__(self) -> None:
        self.first_at = 0.0
        self.n_pieces = 0
        self._pieces: dict[int, list[str]] = {}
        self._ended: set[int] = set()
        self._is_done = False
        self._usages: list[Mapping[str, Any]] = []
        self._timings: Mapping[str, Any] = {}

    def take(self, data: str, at: float) -> str:
        """Take in an event that came at a moment; returns what it adds to the first answer. Raises BadStream."""
        if data.strip() == _END:
            self._is_done = True
            return ""
        event = _parse(data)
        if event.get("error"):
            raise BadStream(f"reports an error: {error_message(event)}")
        if isinstance(event.get("usage"), dict):
            self._usages.append(event["usage"])
        if isinstance(event.get("timings"), dict):
            self._timings = self._timings or event["timings"]
        choices = event.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise BadStream(_OTHER_FORMAT)
        return "".join([self._take_choice(choice, at) for choice in choices])

    def _take_choice(self, choice: Mapping[str, Any], at: float) -> str:
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise BadStream(_OTHER_FORMAT)
        delta = choice.get("delta")
        texts = [delta.get(name) for name in _THOUGHTS_AND_TEXT] if isinstance(delta, dict) else [choice.get("text")]
        text = "".join([text for text in texts if isinstance(text, str)])
        pieces = self._pieces.setdefault(index, [])
        if text:
            self.first_at = self.first_at or at
            self.n_pieces += 1
            pieces.append(text)
        if choice.get("finish_reason"):
            self._ended.add(index)
        return text if index == 0 else ""

    @property
    def is_complete(self) -> bool:
        """Whether the server has said that all answers have ended."""
        return bool(self._pieces) and (self._is_done or self._pieces.keys() == self._ended)

    @property
    def texts(self) -> tuple[str, ...]:
        """Of each answer, thoughts included."""
        return tuple("".join(pieces) for _, pieces in sorted(self._pieces.items()))

    @property
    def generated_tokens(self) -> int:
        """Of all answers, as the server counts them; where it does not, the number of pieces."""
        usages = self._usages if len(self._pieces) > 1 else self._usages[-1:]
        counts = [usage.get("completion_tokens") for usage in usages]
        return sum(count for count in counts if isinstance(count, int)) or self.n_pieces

    @property
    def prompt_tokens(self) -> int | None:
        """By the server's tokenizer."""
        return _count(self._usages[-1].get("prompt_tokens")) if self._usages else None

    @property
    def reused_tokens(self) -> int | None:
        """Prompt tokens that the server found in its cache, if it says so."""
        if self._timings:
            return _count(self._timings.get("cache_n"))
        details = self._usages[-1].get("prompt_tokens_details") if self._usages else None
        return _count(details.get("cached_tokens")) if isinstance(details, dict) else None

    @property
    def prefill_s(self) -> float | None:
        """llama-server's own measurement."""
        return _seconds(self._timings.get("prompt_ms"))

    @property
    def decode_s(self) -> float | None:
        """llama-server's own measurement."""
        return _seconds(self._timings.get("predicted_ms"))


def error_message(body: Mapping[str, Any]) -> str:
    """What a server says went wrong: {"error": {"message": "…"}}, {"error": "…"} or {"message": "…"}."""
    error = body.get("error", body)
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) and message.strip() else json.dumps(error)


def _parse(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        event = None
    if not isinstance(event, dict):
        raise BadStream("sends something that is no JSON object where a piece of an answer should be")
    return event


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _seconds(milliseconds: object) -> float | None:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) and milliseconds >= 0 else None
