"""Where a chat could start so that it fits its window, and how large the window could be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.chat.answering.prompting import history
from app.chat.conversation import Conversation, Message, MessageState
from app.chat.preferences.settings import ChatSettings
from engine.errors import MemoryLimitError, OctavoError, PromptTooLong
from engine.memory import choose_context
from engine.messages import Role, TextRequest

Count = Callable[[TextRequest, Callable[[int | OctavoError], None]], None]
"""Counts the tokens of a request's prompt and calls back: EngineHost.count_tokens."""

_ROUNDED_TO = 256


class Start(NamedTuple):
    """A message that the model could read from on, and the tokens of what it then reads."""

    message_id: int
    n_tokens: int


def is_at_edge(message: Message, error: OctavoError | None, settings: ChatSettings) -> bool:
    """Whether a reply ended because the window was full."""
    if isinstance(error, PromptTooLong):
        return True
    figures = message.figures
    return message.state is MessageState.CUT and figures is not None and figures.generated_tokens != settings.max_tokens


def later_starts(conversation: Conversation, to: int) -> list[int]:
    """Ids of the messages of the user's, after the first message that the model reads, up to `to`."""
    return [message.id for message in history(conversation, to)[1:] if message.role is Role.USER]


def left_out(conversation: Conversation, to: int, start: int) -> list[Message]:
    """What the model reads now and would not read from `start` on."""
    messages = history(conversation, to)
    return messages[: [message.id for message in messages].index(start)]


def find_start(
    count: Count,
    request_from: Callable[[int], TextRequest],
    starts: Sequence[int],
    limit: int,
    most: int,
    deliver: Callable[[Start | OctavoError | None], None],
) -> None:
    """Find the earliest start from which a prompt has at most `limit` tokens; for the last one `most` will do.

    Counts as few as a binary search needs, one after the other. Delivers None where no start will do.
    """
    low, high = 0, len(starts)
    best: Start | None = None

    def look() -> None:
        if low == high:
            deliver(best)
            return
        middle = (low + high) // 2
        count(request_from(starts[middle]), lambda n_tokens: take(middle, n_tokens))

    def take(middle: int, n_tokens: int | OctavoError) -> None:
        nonlocal low, high, best
        if isinstance(n_tokens, OctavoError):
            deliver(n_tokens)
            return
        if n_tokens <= (most if middle == len(starts) - 1 else limit):
            best, high = Start(starts[middle], n_tokens), middle
        else:
            low = middle + 1
        look()

    look()


def larger_context(context: int, needed: int, bytes_per_token: int, available: int) -> int | None:
    """Twice the window, or what `needed` tokens and an answer take; less where half of the free memory holds less.

    None where that is no gain, or would not hold what is needed.
    """
    wanted = max(2 * context, needed + context // 4)
    wanted += -wanted % _ROUNDED_TO
    if bytes_per_token:
        try:
            wanted = choose_context(None, wanted, bytes_per_token, available)
        except MemoryLimitError:
            return None
    return wanted if wanted > max(context, needed) else None
