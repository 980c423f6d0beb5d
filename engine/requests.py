"""What every engine checks before it takes a request."""

from __future__ import annotations

from engine.errors import PromptError


def check_prompt(n_prompt: int, context: int) -> None:
    """Refuse a prompt of `n_prompt` tokens that cannot be answered in a window of `context` tokens.

    One token of the window is for the answer, so a prompt holds at most `context` - 1. Raises PromptError.
    """
    if n_prompt == 0:
        raise PromptError("The prompt is empty: give it at least one word.")
    excess = n_prompt - (context - 1)
    if excess > 0:
        raise PromptError(
            f"The prompt has {n_prompt:,} tokens, {excess:,} more than fit a context of {context:,} with room for an "
            f"answer: shorten it, or use --context {n_prompt + 1} or more."
        )
