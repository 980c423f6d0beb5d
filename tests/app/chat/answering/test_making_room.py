"""Where a chat can start so that it fits: the search finds what looking at every start would find."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.answering.making_room import Start, find_start, is_at_edge, larger_context, later_starts, left_out
from app.chat.conversation import Conversation, Message, MessageState, ReplyFigures
from app.chat.preferences.settings import ChatSettings
from engine.errors import EngineDied, OctavoError, PromptTooLong
from engine.messages import Role, TextRequest

NOW = datetime(2025, 3, 5, tzinfo=UTC)


def search(counts: list[int], limit: int, most: int) -> tuple[Start | OctavoError | None, int]:
    """What is found, and how often something was counted. The starts are 0, 1, 2 …"""
    found: list[Start | OctavoError | None] = []
    asked: list[str] = []

    def count(request: TextRequest, deliver: Callable[[int | OctavoError], None]) -> None:
        assert isinstance(request.prompt, str)
        asked.append(request.prompt)
        deliver(counts[int(request.prompt)])

    find_start(count, lambda start: TextRequest(str(start)), range(len(counts)), limit, most, found.append)
    (result,) = found
    return result, len(asked)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=60), st.integers(0, 120), st.integers(0, 40))
def test_the_earliest_start_that_fits(sizes: list[int], limit: int, more: int) -> None:
    counts = [sum(sizes[start:]) for start in range(len(sizes))]
    most = limit + more
    fitting = [start for start, n in enumerate(counts) if n <= (most if start == len(counts) - 1 else limit)]
    result, n_asked = search(counts, limit, most)
    assert result == (Start(fitting[0], counts[fitting[0]]) if fitting else None)
    assert n_asked <= len(counts).bit_length()


def test_an_error_ends_the_search() -> None:
    error = EngineDied("gone")
    found: list[object] = []
    find_start(lambda _, deliver: deliver(error), lambda start: TextRequest(str(start)), [1, 2, 3], 9, 9, found.append)
    assert found == [error]


def chat(*roles: Role, empty: int | None = None) -> Conversation:
    conversation = Conversation(1)
    for number, role in enumerate(roles, start=1):
        text = "" if number == empty else f"text {number}"
        conversation.put(Message(number, number - 1 or None, role, text, MessageState.COMPLETE, NOW))
    conversation.leaf = len(roles)
    return conversation


def test_a_chat_starts_with_a_message_of_the_users() -> None:
    conversation = chat(*[Role.USER, Role.ASSISTANT] * 3, Role.USER)
    assert later_starts(conversation, 7) == [3, 5, 7]
    assert [message.id for message in left_out(conversation, 7, 5)] == [1, 2, 3, 4]
    conversation.start = 3
    assert later_starts(conversation, 7) == [5, 7]
    assert [message.id for message in left_out(conversation, 7, 5)] == [3, 4]
    assert later_starts(chat(Role.USER), 1) == []


@pytest.mark.parametrize(
    ("state", "generated", "max_tokens", "error", "expected"),
    [
        (MessageState.CUT, 20, None, None, True),
        (MessageState.CUT, 20, 30, None, True),
        (MessageState.CUT, 30, 30, None, False),
        (MessageState.COMPLETE, 20, None, None, False),
        (MessageState.FAILED, None, None, PromptTooLong("too long", 9, 8), True),
        (MessageState.FAILED, None, None, EngineDied("gone"), False),
    ],
)
def test_when_the_window_was_full(
    state: MessageState, generated: int | None, max_tokens: int | None, error: OctavoError | None, expected: bool
) -> None:
    figures = None if generated is None else ReplyFigures("m", generated, 0, 10, 0.1, None)
    message = Message(2, 1, Role.ASSISTANT, "x", state, NOW, figures)
    assert is_at_edge(message, error, ChatSettings(max_tokens=max_tokens)) == expected


def test_a_larger_window() -> None:
    plenty = 10**12
    assert larger_context(2048, 100, 1000, plenty) == 4096
    assert larger_context(2048, 9000, 1000, plenty) == 9728  # 9000 + 512, in steps of 256
    assert larger_context(2048, 100, 1000, 2 * 3000 * 1000) == 2816, "what half of the memory holds"
    assert larger_context(2048, 2900, 1000, 2 * 3000 * 1000) is None, "it would not hold what is needed"
    assert larger_context(2048, 100, 1000, 2 * 2048 * 1000) is None, "it would be no larger"
    assert larger_context(2048, 100, 1000, 0) is None
    assert larger_context(2048, 100, 0, 0) == 4096, "a model without keys and values"
