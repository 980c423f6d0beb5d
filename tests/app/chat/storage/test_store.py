"""Stored chats: lists, messages, search, undo, and files that are no good."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.rows import time_text
from app.chat.storage.store import ChatStore
from engine.messages import Role
from models.folders import data_folder
from tests.app.chat.storage.stored import FIGURES, SETTINGS, say, sql

# --- what is stored ---


def test_a_chat_comes_back_with_all_it_has(file: Path) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    with ChatStore(file) as store:
        chat = store.create_chat(SETTINGS, "A title", named=True)
        question = store.add_message(chat.id, None, Role.USER, "Why \0 \x1b[31m <|im_end|>\r\n北京 🦜?")
        reply = store.add_message(chat.id, question.id, Role.ASSISTANT, "", MessageState.STREAMING)
        store.update_message(reply.id, text="Because.")
        store.update_message(reply.id, state=MessageState.CUT, figures=FIGURES)
        store.set_start(chat.id, reply.id)
    with ChatStore(file) as store:
        conversation = store.load(chat.id)
        assert list(conversation.messages.values()) == [
            question,
            replace(reply, text="Because.", state=MessageState.CUT, figures=FIGURES),
        ]
        assert (conversation.chat_id, conversation.leaf, conversation.start) == (chat.id, reply.id, reply.id)
        summary = store.summary(chat.id)
        assert summary == replace(chat, updated=reply.created)
        assert (summary.title, summary.named, summary.settings) == ("A title", True, SETTINGS)
    assert before <= question.created <= reply.created <= datetime.now(UTC)
    assert question.text == "Why \0 \x1b[31m <|im_end|>\r\n北京 🦜?"


def test_a_lone_surrogate_becomes_a_mark(store: ChatStore) -> None:
    chat = say(store, "a \ud800 b", title="\udfff")
    assert next(iter(store.load(chat.id).messages.values())).text == "a � b"
    assert store.summary(chat.id).title == "�"
    assert store.search("\ud800") == []


def test_the_file_is_the_owners_alone(file: Path, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with ChatStore(file) as store:
            say(store, "secret")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
            assert modes.pop("chats.db-running") == 0o700
            assert modes == {"chats.db": 0o600, "chats.db-wal": 0o600, "chats.db-shm": 0o600}
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        file.chmod(0o644)  # as after a copy from elsewhere
        ChatStore(file).close()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(old)


def test_it_is_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    ChatStore().close()
    assert (data_folder() / "chats.db").is_file()


def test_nothing_is_left_beside_the_file(file: Path) -> None:
    with ChatStore(file) as store:
        say(store, "text")
    assert sorted(path.name for path in file.parent.iterdir()) == ["chats.db", "chats.db-running"]
    assert list((file.parent / "chats.db-running").iterdir()) == []


# --- the list ---


def test_pinned_chats_come_first_then_the_newest_message(store: ChatStore, file: Path) -> None:
    ids = [say(store, "text").id for _ in range(4)]
    start = datetime.now(UTC)
    for minutes, chat_id in enumerate(ids):
        sql(file, "UPDATE chats SET updated = ? WHERE id = ?", time_text(start + timedelta(minutes=minutes)), chat_id)
    store.pin(ids[1], True)
    assert [chat.id for chat in store.chats()] == [ids[1], ids[3], ids[2], ids[0]]
    store.archive(ids[3], True)
    assert [chat.id for chat in store.chats()] == [ids[1], ids[2], ids[0]]
    assert [chat.id for chat in store.chats(archived=True)] == [ids[3]]
    store.pin(ids[1], False)
    store.archive(ids[3], False)
    assert [chat.id for chat in store.chats()] == ids[::-1]
    sql(file, "UPDATE chats SET updated = ?", time_text(start - timedelta(days=1)))
    store.add_message(ids[2], None, Role.USER, "more")
    assert store.chats()[0].id == ids[2]


def test_titles_and_settings_change(store: ChatStore) -> None:
    chat = store.create_chat(SETTINGS)
    assert (chat.title, chat.named) == ("", False)
    store.rename(chat.id, "A guess", named=False)
    assert (store.summary(chat.id).title, store.summary(chat.id).named) == ("A guess", False)
    store.rename(chat.id, "Mine")
    assert (store.summary(chat.id).title, store.summary(chat.id).named) == ("Mine", True)
    store.save_settings(chat.id, ChatSettings(seed=1))
    assert store.summary(chat.id).settings == ChatSettings(seed=1)
    assert [one.settings for one in store.chats()] == [ChatSettings(seed=1)]


def test_a_deleted_chat_is_gone_until_it_is_restored(store: ChatStore) -> None:
    chat, other = say(store, "parrot", title="Birds"), say(store, "cat")
    before = store.load(chat.id)
    store.delete_chat(chat.id)
    assert [one.id for one in store.chats()] == [other.id]
    assert store.search("parrot") == store.search("birds") == []
    for use in (store.summary, store.load, store.delete_chat):
        with pytest.raises(StoreError, match="deleted"):
            use(chat.id)
    with pytest.raises(StoreError, match="deleted"):
        store.add_message(chat.id, None, Role.USER, "more")
    store.restore_chat(chat.id)
    assert store.load(chat.id) == before
    assert len(store.search("parrot")) == len(store.search("birds")) == 1


def test_what_was_deleted_long_ago_is_purged(file: Path) -> None:
    """On the next start, with all that it left in the indexes; what was deleted lately stays."""
    with ChatStore(file) as store:
        old, recent, cut = say(store, "old words"), say(store, "recent words"), say(store, "one", "two words", "three")
        ids = list(store.load(cut.id).messages)
        store.delete_chat(old.id)
        store.delete_chat(recent.id)
        tokens = [store.delete_messages(cut.id, ids[2]), store.delete_messages(cut.id, ids[1])]
    long_ago = time_text(datetime.now(UTC) - timedelta(days=30, seconds=1))
    lately = time_text(datetime.now(UTC) - timedelta(days=29, hours=23))
    sql(file, "UPDATE chats SET deleted_at = ? WHERE id = ?", long_ago, old.id)
    sql(file, "UPDATE chats SET deleted_at = ? WHERE id = ?", lately, recent.id)
    sql(file, "UPDATE deletions SET deleted_at = ? WHERE id = ?", long_ago, tokens[0])
    with ChatStore(file) as store:
        for restore, which in ((store.restore_chat, old.id), (store.restore_messages, tokens[0])):
            with pytest.raises(StoreError, match="30 days"):
                restore(which)
        with pytest.raises(StoreError, match="30 days"):
            store.update_message(ids[2], text="late")
        store.restore_chat(recent.id)
        store.restore_messages(tokens[1])
        assert list(store.load(cut.id).messages) == ids[:2]
        assert len(store.search("words")) == 2
        assert store.add_message(cut.id, None, Role.USER, "new").id > ids[2]  # an id is never given twice
    with sqlite3.connect(file) as connection:
        for table in ("messages", "deletions"):
            ids = [row[0] for row in connection.execute(f"SELECT chat_id FROM {table}")]
            assert old.id not in ids
        connection.create_function("searchable", 1, lambda text: text, deterministic=True)
        connection.execute("INSERT INTO message_index (message_index, rank) VALUES ('integrity-check', 1)")
    connection.close()


# --- messages ---


def test_deleting_moves_the_leaf_and_undo_moves_it_back(store: ChatStore) -> None:
    chat = say(store, "one", "two", "three")
    one, two, three = store.load(chat.id).messages
    other = store.add_message(chat.id, one, Role.ASSISTANT, "other").id
    store.set_leaf(chat.id, three)
    token = store.delete_messages(chat.id, two)
    assert (list(store.load(chat.id).messages), store.load(chat.id).leaf) == ([one, other], other)
    store.restore_messages(token)
    assert (list(store.load(chat.id).messages), store.load(chat.id).leaf) == ([one, two, three, other], three)
    with pytest.raises(StoreError, match="already"):
        store.restore_messages(token)
    store.delete_messages(chat.id, one)
    assert (store.load(chat.id).messages, store.load(chat.id).leaf) == ({}, None)


def test_what_a_restored_message_followed_comes_back_with_it(store: ChatStore) -> None:
    chat = say(store, "one", "two", "three", "four")
    ids = list(store.load(chat.id).messages)
    first = store.delete_messages(chat.id, ids[3])
    second = store.delete_messages(chat.id, ids[1])
    store.restore_messages(first)
    assert list(store.load(chat.id).messages) == ids
    store.restore_messages(second)
    assert list(store.load(chat.id).messages) == ids


def test_undo_always_leaves_a_path(store: ChatStore) -> None:
    """The leaf of before the first deletion went with the second one, which is not undone."""
    chat = say(store, "one")
    (one,) = store.load(chat.id).messages
    left, right = (store.add_message(chat.id, one, Role.ASSISTANT, text).id for text in ("left", "right"))
    first = store.delete_messages(chat.id, left)
    store.delete_messages(chat.id, one)
    store.restore_messages(first)
    conversation = store.load(chat.id)
    assert (list(conversation.messages), conversation.leaf) == ([one, left], left)
    assert right not in conversation.messages


def test_undo_brings_the_start_back(store: ChatStore) -> None:
    chat = say(store, "one", "two", "three")
    two = list(store.load(chat.id).messages)[1]
    store.set_start(chat.id, two)
    token = store.delete_messages(chat.id, two)
    assert store.load(chat.id).start is None
    store.restore_messages(token)
    assert store.load(chat.id).start == two
    store.set_start(chat.id, None)
    assert store.load(chat.id).start is None


def test_messages_that_are_gone_or_of_another_chat_are_refused(store: ChatStore) -> None:
    chat, other = say(store, "one", "two"), say(store, "elsewhere")
    one, two = store.load(chat.id).messages
    (elsewhere,) = store.load(other.id).messages
    store.delete_messages(chat.id, two)
    for message_id in (two, elsewhere, 99):
        with pytest.raises(StoreError, match="deleted"):
            store.add_message(chat.id, message_id, Role.USER, "more")
        with pytest.raises(StoreError, match="deleted"):
            store.set_leaf(chat.id, message_id)
        with pytest.raises(StoreError, match="deleted"):
            store.set_start(chat.id, message_id)
        with pytest.raises(StoreError, match="deleted"):
            store.delete_messages(chat.id, message_id)
    assert list(store.load(chat.id).messages) == [one]


def test_a_chain_of_thousands_is_deleted_and_restored(store: ChatStore) -> None:
    chat = store.create_chat(SETTINGS)
    with store._database.writing() as connection:
        for number in range(5000):
            connection.execute(
                "INSERT INTO messages (chat_id, parent, role, state, created, text)"
                " VALUES (?, ?, 'user', 'complete', '2026-01-01T00:00:00.000+00:00', 'text')",
                (chat.id, number or None),
            )
        connection.execute("UPDATE chats SET leaf = 5000")
    token = store.delete_messages(chat.id, 2)
    assert list(store.load(chat.id).messages) == [1]
    store.restore_messages(token)
    assert len(store.load(chat.id).path()) == 5000


# --- two instances in one process; several processes are in test_store_processes.py ---


def test_changes_of_another_instance_are_noticed(store: ChatStore, file: Path) -> None:
    with ChatStore(file) as other:
        store.changed()
        assert not store.changed()
        say(store, "mine")
        assert not store.changed()
        chat = say(other, "theirs")
        assert store.changed()
        assert not store.changed()
        assert store.load(chat.id) == other.load(chat.id)
    with ChatStore(file):
        pass
    assert not store.changed()  # nothing was written


def test_a_reply_that_another_instance_writes_is_its_own(store: ChatStore, file: Path) -> None:
    chat = say(store, "question")
    with ChatStore(file) as other:
        reply = other.add_message(chat.id, 1, Role.ASSISTANT, "so far", MessageState.STREAMING).id
        assert store.load(chat.id).messages[reply].state is MessageState.STREAMING
        with pytest.raises(StoreError, match="another window"):
            store.update_message(reply, text="mine")
        other.update_message(reply, text="and further")
    interrupted = store.load(chat.id).messages[reply]
    assert (interrupted.text, interrupted.state) == ("and further", MessageState.INTERRUPTED)
    store.update_message(reply, state=MessageState.STREAMING)
    store.update_message(reply, text="mine", state=MessageState.COMPLETE)
    assert store.load(chat.id).messages[reply].text == "mine"


def test_a_defect_is_no_error_in_words(store: ChatStore) -> None:
    """One thread uses a store; another one is told so plainly."""
    raised: list[BaseException] = []

    def use() -> None:
        try:
            store.chats()
        except sqlite3.ProgrammingError as error:
            raised.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert raised
