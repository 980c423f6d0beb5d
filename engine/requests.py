"""What every engine checks before it takes a request."""

from __future__ import annotations

from engine.errors import PromptError, PromptTooLong
from engine.sequence import Request


def check_request(request: Request, context: int) -> None:
    """Refuse a request that no engine with a window of `context` tokens can answer. Raises PromptError."""
    check_prompt(len(request.prompt), context)
    if request.max_tokens is not None and request.max_tokens < 1:
        raise PromptError(f"An answer of {request.max_tokens} tokens was asked for: ask for at least one.")
    if request.n < 1:
        raise PromptError(f"{request.n} answers were asked for: ask for at least one.")


def check_prompt(n_prompt: int, context: int) -> None:
    """Refuse a prompt of `n_prompt` tokens that leaves no room for an answer in a window of `context` tokens.

    It holds at most `context` - 1 tokens of prompt. Raises PromptError or PromptTooLong.
    """
    if n_prompt == 0:
        raise PromptError("The prompt is empty: give it at least one word.")
    excess = n_prompt - (context - 1)
    if excess > 0:
        raise PromptTooLong(
            f"The prompt has {n_prompt:,} tokens, {excess:,} more than fit a context of {context:,} with room for an "
            f"answer: shorten it, or use --context {n_prompt + 1} or more.",
            n_prompt,
            context,
        )
