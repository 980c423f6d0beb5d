"""Walking the tree; adding and removing is in test_store_machine.py, against a plain model."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.chat.conversation import Conversation, Message, MessageState
from engine.messages import Role


@pytest.fixture
def chat() -> Conversation:
    """1 has the replies 2, 3 and 5; 3 goes on to 4 and 6; 7 is another beginning. Put in another order than created."""
    chat = Conversation(1, leaf=2)
    for message_id, parent in {7: None, 1: None, 5: 1, 3: 1, 2: 1, 6: 3, 4: 3}.items():
        chat.put(Message(message_id, parent, Role.USER, f"text {message_id}", MessageState.COMPLETE, datetime.now(UTC)))
    return chat


def test_children_and_siblings_are_in_the_order_of_creation(chat: Conversation) -> None:
    assert chat.children(None) == chat.siblings(1) == [1, 7]
    assert chat.children(1) == chat.siblings(3) == [2, 3, 5]
    assert chat.children(2) == []


def test_neighbours_and_the_youngest_end_after_them(chat: Conversation) -> None:
    assert [message.id for message in chat.path()] == [1, 2]
    assert (chat.neighbour(2, 1), chat.neighbour(3, 1), chat.neighbour(5, 1)) == (3, 5, None)
    assert (chat.neighbour(1, 1), chat.neighbour(7, 1), chat.neighbour(7, -1)) == (7, None, 1)
    assert (chat.newest_leaf(3), chat.newest_leaf(1)) == (6, 5)
    assert [message.id for message in chat.path(4)] == [1, 3, 4]


def test_a_revised_message_stays_in_its_place(chat: Conversation) -> None:
    assert chat.revise(3, text="other").text == "other"
    assert chat.messages[3].text == "other"
    assert chat.children(1) == [2, 3, 5]
    chat.children(1).clear()
    assert chat.children(1) == [2, 3, 5]


def test_the_start_goes_with_its_message(chat: Conversation) -> None:
    chat.start = 4
    assert sorted(chat.remove(3)) == [3, 4, 6]
    assert chat.leaf == 2
    assert (chat.children(1), chat.children(3)) == ([2, 5], [])
    assert [message.id for message in chat.path()] == [1, 2]
    assert chat.starting_at(None) == chat


def test_a_long_chat_is_walked_at_once() -> None:
    """20,000 messages: looking through all of them for the children of each would take hours."""
    chat = Conversation(1)
    for message_id in range(1, 20_001):
        chat.put(
            Message(message_id, message_id - 1 or None, Role.USER, "text", MessageState.COMPLETE, datetime.now(UTC))
        )
    assert chat.newest_leaf(1) == 20_000
    assert len(chat.subtree(1)) == 20_000
