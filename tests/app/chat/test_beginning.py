"""How `octavo chat` finds the chat that the user means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.chat.beginning import chat_called, latest_chat
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.messages import Role


@pytest.fixture
def store() -> Iterator[ChatStore]:
    with ChatStore() as store:
        yield store


def test_the_latest_chat_is_the_one_with_the_newest_message(store: ChatStore) -> None:
    with pytest.raises(StoreError, match="There is no chat to continue"):
        latest_chat(store)
    ids = [store.create_chat(ChatSettings(), title).id for title in ("one", "two", "three")]
    assert latest_chat(store) == ids[2]
    store.add_message(ids[0], None, Role.USER, "hello")
    store.pin(ids[1], True)
    assert latest_chat(store) == ids[0]
    store.archive(ids[0], True)
    assert latest_chat(store) == ids[2]


def test_by_number_title_or_words(store: ChatStore) -> None:
    first = store.create_chat(ChatSettings(), "Hearts of an octopus").id
    second = store.create_chat(ChatSettings(), "Octopus").id
    third = store.create_chat(ChatSettings(), "1984").id
    store.archive(first, True)
    assert chat_called(store, str(second)) == second
    assert chat_called(store, "octopus") == second, "the whole title wins over words of another"
    assert chat_called(store, "heart OF") == first
    with pytest.raises(StoreError, match="'squid'"):
        chat_called(store, "squid")
    assert chat_called(store, "1984") == third, "no chat has that number"
    with pytest.raises(StoreError, match="No chat is called"):
        chat_called(store, "9" * 30)
    with pytest.raises(StoreError, match=f"Several chats .* {second} is 'Octopus'"):
        chat_called(store, "o")
    store.delete_chat(second)
    assert chat_called(store, "o") == first
