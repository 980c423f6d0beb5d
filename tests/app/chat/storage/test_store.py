"""Stored chats: lists, messages, search, undo, and files that are no good."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.chat.conversation import MessageState, ReplyFigures
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.rows import ChatSummary, time_text
from app.chat.storage.search import SearchHit
from app.chat.storage.store import ChatStore
from engine.config import KvType
from engine.messages import Role
from models.folders import data_folder
from tests.app.command import ROOT

SETTINGS = ChatSettings(model="Qwen3-4B-Q4_K_M", temperature=0.0, kv_type=KvType.Q8_0, thinking=False)
FIGURES = ReplyFigures("Qwen3-4B", 120, 512, 16, 0.25, 31.5, thought_s=2.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "octavo" / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[ChatStore]:
    with ChatStore(file) as store:
        yield store


def sql(file: Path, statement: str, *values: object) -> None:
    """What no method does, by another connection."""
    with sqlite3.connect(file) as connection:
        connection.create_function("searchable", 1, lambda text: text, deterministic=True)
        connection.execute(statement, values)
    connection.close()


def say(store: ChatStore, *texts: str, title: str = "") -> ChatSummary:
    """A chat of these messages, one after the other."""
    chat = store.create_chat(SETTINGS, title)
    parent = None
    for number, text in enumerate(texts):
        parent = store.add_message(chat.id, parent, Role.ASSISTANT if number % 2 else Role.USER, text).id
    return chat


def found(store: ChatStore, words: str) -> list[tuple[int | None, str]]:
    """Message and match of every hit."""
    return [(hit.message_id, hit.match) for hit in store.search(words)]


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


# --- search ---


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


# --- files that are no good ---


@pytest.mark.parametrize("content", [b"no database" * 1000, b"SQLite format 3\0" + bytes(4096)], ids=["text", "header"])
def test_a_file_that_is_no_database(file: Path, content: bytes) -> None:
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"damaged.*move the file away"):
        ChatStore(file)
    assert file.read_bytes() == content


def test_a_damaged_file_is_an_error_in_words_or_does_no_harm(file: Path) -> None:
    with ChatStore(file) as store:
        for number in range(20):
            say(store, f"word{number} " * 500, "reply " * 500, title=f"Title {number}")
    content = file.read_bytes()
    n_errors = 0
    for page in range(1, len(content) // 4096):
        file.write_bytes(content[: page * 4096] + b"\xa5" * 4096 + content[(page + 1) * 4096 :])
        try:
            with ChatStore(file) as store:
                for chat in store.chats():
                    store.load(chat.id)
                    store.delete_messages(chat.id, store.add_message(chat.id, None, Role.USER, "more").id)
                store.search("word1")
        except StoreError:
            n_errors += 1
        for other in ("chats.db-wal", "chats.db-shm"):
            (file.parent / other).unlink(missing_ok=True)
    assert n_errors > 3


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET role = 'oracle'",
        "UPDATE messages SET state = 'pondered'",
        "UPDATE messages SET created = 'yesterday'",
        "UPDATE messages SET figures = '{'",
        "UPDATE messages SET figures = '{}'",
        "UPDATE messages SET parent = 77",
        "UPDATE messages SET parent = id",
        "UPDATE chats SET leaf = 77",
    ],
)
def test_a_damaged_row_is_an_error_in_words_and_its_chat_can_be_deleted(
    store: ChatStore, file: Path, statement: str
) -> None:
    chat = say(store, "one", "two")
    sql(file, statement)
    with pytest.raises(StoreError, match="delete the chat"):
        store.load(chat.id)
    store.delete_chat(chat.id)
    assert store.chats() == []


@pytest.mark.parametrize("assignment", ["settings = 'x'", "settings = '7'", "updated = ''"])
def test_a_damaged_chat_is_an_error_in_words(store: ChatStore, file: Path, assignment: str) -> None:
    say(store, "one")
    sql(file, f"UPDATE chats SET {assignment}")
    with pytest.raises(StoreError, match="delete the chat"):
        store.chats()


def test_a_place_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="OCTAVO_DATA_DIR"):
        ChatStore(tmp_path / "file" / "chats.db")
    (tmp_path / "folder" / "chats.db").mkdir(parents=True)
    with pytest.raises(StoreError, match="OCTAVO_DATA_DIR"):
        ChatStore(tmp_path / "folder" / "chats.db")


def test_a_file_that_may_not_be_written() -> None:
    """As another user, since root may write everything."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chats.db"
        ChatStore(file).close()
        os.chmod(folder, 0o755)
        file.chmod(0o444)
        code = (
            "import os, sys; from app.chat.storage.store import ChatStore; from pathlib import Path\n"
            "os.geteuid() or os.setuid(65534)\n"
            "ChatStore(Path(sys.argv[1]))"
        )
        result = subprocess.run(
            [sys.executable, "-c", code, str(file)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if os.geteuid():
            os.chmod(folder, 0o700)
    assert "StoreError: " in result.stderr
    assert "OCTAVO_DATA_DIR" in result.stderr


def test_a_program_that_keeps_it_locked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.storage.database._WAIT_S", 0.05)
    with ChatStore(file) as store:
        chat = say(store, "one")
        connection = sqlite3.connect(file)
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.rename(chat.id, "mine")
        assert len(store.load(chat.id).messages) == 1
        connection.close()
        store.rename(chat.id, "mine")


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
