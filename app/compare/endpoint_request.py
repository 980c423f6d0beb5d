"""What is sent to a server with OpenAI's interface for one request."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

from app.compare.words import Words
from engine.messages import TextRequest, TokenPrompt

_SALT_WORDS = 6
"""Enough for a text that nobody has sent before."""


class EndpointRequest(NamedTuple):
    """path: below the address that ends in /v1. body: JSON."""

    path: str
    body: dict[str, Any]


class RequestWriter:
    """Writes requests. Their prompts begin with words that are drawn anew by `forget`, so that no cache knows them."""

    def __init__(self, model: str, words: Words) -> None:
        """words: what token prompts are made of."""
        self._model = model
        self._words = words
        self.forget()

    def forget(self) -> None:
        """Let the next prompts have nothing in common with the ones before."""
        self._salt = tuple(secrets.randbits(32) for _ in range(_SALT_WORDS))

    def write(self, request: TextRequest, first: int = 0, n: int = 1) -> EndpointRequest:
        """Ask for n of a request's answers, from number `first` on.

        A token prompt keeps its length: the salt replaces its first tokens.
        """
        path, body = self._prompt(request)
        return EndpointRequest(path, {"model": self._model, "stream": True} | body | _options(request, first, n))

    def _prompt(self, request: TextRequest) -> tuple[str, dict[str, Any]]:
        salt = self._words.text(self._salt).strip() + "\n"
        match request.prompt:
            case str(text):
                return "completions", {"prompt": salt + text + request.continued}
            case TokenPrompt(ids):
                first = self._salt[: len(ids) - 1]
                # what llama-server and vLLM call the wish to have `max_tokens` tokens; others pass over it
                return "completions", {"prompt": self._words.text((*first, *ids[len(first) :])), "ignore_eos": True}
            case messages:
                turns = [{"role": str(message.role), "content": message.content} for message in messages]
                turns[0]["content"] = salt + turns[0]["content"]
                if request.continued:
                    turns.append({"role": "assistant", "content": request.continued})
                body: dict[str, Any] = {"messages": turns}
                if request.thinking is not None:
                    body["chat_template_kwargs"] = {"enable_thinking": request.thinking}
                return "chat/completions", body


def _options(request: TextRequest, first: int, n: int) -> dict[str, Any]:
    sampling = request.sampling
    options: dict[str, Any] = {
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p if sampling.temperature else None,
        "seed": None if sampling.seed is None else sampling.seed + first,
        "max_tokens": request.max_tokens,
        "stop": list(request.stop) or None,
        "n": n if n > 1 else None,
    }
    return {name: value for name, value in options.items() if value is not None}
