"""Finding chats and messages by their words."""

from __future__ import annotations

import re

import pytest

from app.chat.conversation import MessageState
from app.chat.storage.search import SearchHit
from app.chat.storage.store import ChatStore
from engine.messages import Role
from tests.app.chat.storage.stored import found, say


def test_search_finds_titles_then_the_newest_messages(store: ChatStore) -> None:
    first = say(store, "The parrot sat on the kettle.", "A Parrot?", title="On kettles")
    second = say(store, "Another kettle", title="Parrot and kettle")
    store.archive(first.id, True)
    one, two = store.load(first.id).messages.values()
    assert [(hit.chat_id, hit.message_id) for hit in store.search("parrot")] == [
        (second.id, None),
        (first.id, two.id),
        (first.id, one.id),
    ]
    assert [(hit.chat_id, hit.message_id) for hit in store.search("kettle parrot")] == [
        (second.id, None),
        (first.id, one.id),
    ]
    assert store.search("parrot")[2] == SearchHit(
        first.id, one.id, "On kettles", "The ", "parrot", " sat on the kettle.", one.created
    )
    assert len(store.search("parrot", limit=2)) == 2
    assert len(store.search("parrot", limit=1)) == 1


def test_search_shows_the_place_in_a_long_text(store: ChatStore) -> None:
    say(store, "a " * 10_000 + "needle" + " b" * 10_000)
    (hit,) = store.search("needle")
    assert hit.match == "needle"
    assert re.fullmatch(r"…(a )+", hit.before)
    assert re.fullmatch(r"( b)+…", hit.after)
    assert len(hit.before) + len(hit.after) < 100


@pytest.mark.parametrize(
    ("words", "matches"),
    [
        ("netw", ["networking"]),  # the last word may be a beginning
        ("netw on", []),  # the others may not
        ("NETWORKING", ["networking"]),
        ("cafe", ["Café"]),
        ("CAFÉ", ["Café"]),
        ("strasse", []),
        ("straße", ["Straße"]),
        ("北京", ["北京"]),
        ("大学", ["大学"]),  # in the middle of a run
        ("学北", []),
        ("京大 café", ["Café"]),
        ("ビール", ["ビール"]),
        ("ไทย", ["ไทย"]),
        ("한국", ["한국어를"]),
        ("привет", ["Привет"]),
        ("foo-bar", ["foo-bar"]),
        ("snake_case", ["snake_case"]),
        ("don't", ["don't"]),
        ("3.14", ["3.14"]),
    ],
)
def test_words_of_many_scripts(store: ChatStore, words: str, matches: list[str]) -> None:
    text = "networking Café Straße 我在北京大学 生ビール ภาษาไทย 한국어를 Привет\nfoo-bar snake_case don't 3.14"
    say(store, *text.split("\n"))
    hits = store.search(words)
    assert [hit.match for hit in hits] == matches
    for hit in hits:
        assert (hit.before + hit.match + hit.after).strip("…") in text


@pytest.mark.parametrize(
    "words",
    ['"', '""', 'a"b', "*", "a*", "(", "a AND", "NOT a", "a OR b", "NEAR(a b, 1)", "text:a", "^a", "a + b", "-a", "{a}",
     "'", "a\0b", "\0", "", " ", "?!", "a ?!", "\u200b", "%", "_", "\\", "a" * 100_000, "a " * 2_000],
)  # fmt: skip
def test_nothing_that_is_typed_is_syntax(store: ChatStore, words: str) -> None:
    """Operators would find the first message, or be an error; as words they are in the second one only."""
    say(store, "a b text")
    say(store, "a and or not near a text 1 b")
    hits = found(store, words)
    assert {message_id for message_id, _ in hits} <= {1, 2}
    if any(operator in words for operator in ("AND", "NOT", "OR", "NEAR")):
        assert [message_id for message_id, _ in hits] == [2]
    if not any(character.isalnum() for character in words):
        assert hits == []


def test_the_mark_of_a_match_cannot_be_faked(store: ChatStore) -> None:
    say(store, "\u200b\u200b <b>x</b> \x02 needle \x03 …")
    (hit,) = store.search("needle")
    assert (hit.before, hit.match, hit.after) == (" <b>x</b> \x02 ", "needle", " \x03 …")


def test_a_text_is_found_as_it_is_now(store: ChatStore) -> None:
    chat = say(store, "before", title="Old title")
    (message_id,) = store.load(chat.id).messages
    store.update_message(message_id, text="after")
    store.rename(chat.id, "New name")
    assert found(store, "before") == found(store, "old") == []
    assert found(store, "after") == [(message_id, "after")]
    assert found(store, "name") == [(None, "name")]


def test_a_reply_is_found_when_it_has_ended(store: ChatStore) -> None:
    chat = say(store, "question")
    reply = store.add_message(chat.id, 1, Role.ASSISTANT, "", MessageState.STREAMING).id
    store.update_message(reply, text="needle")
    assert found(store, "needle") == []
    store.update_message(reply, state=MessageState.STOPPED)
    assert found(store, "needle") == [(reply, "needle")]
    store.update_message(reply, state=MessageState.STREAMING)  # it is continued
    store.update_message(reply, text="needle thread")
    store.update_message(reply, text="thread", state=MessageState.COMPLETE)
    assert found(store, "needle") == []
    assert found(store, "thread") == [(reply, "thread")]
