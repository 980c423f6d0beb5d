"""Long messages are found as quickly as short ones."""

from __future__ import annotations

from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.messages import Role


def test_the_place_of_words_in_a_long_message() -> None:
    with ChatStore() as store:
        chat = store.create_chat(ChatSettings(), "Long")
        text = "lorem ipsum " * 5_000 + "the kraken wakes " + "dolor sit " * 5_000
        store.add_message(chat.id, None, Role.USER, text)
        (hit,) = store.search("wakes kraken")
        assert (hit.match, hit.before[-11:], hit.after[:6]) == ("wakes", "the kraken ", " dolor")
        (hit,) = store.search("KRAK")
        assert (hit.match, hit.after[:8]) == ("krak", "en wakes")
        (hit,) = store.search("krâken")
        assert (hit.match, hit.before[:11]) == ("", "lorem ipsum")
