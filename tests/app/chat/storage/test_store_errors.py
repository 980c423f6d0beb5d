"""Files of chats that are no good, damaged, locked, or where none can be."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from app.chat.errors import StoreError
from app.chat.storage.store import ChatStore
from engine.messages import Role
from tests.app.chat.storage.stored import say, sql
from tests.app.command import ROOT


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
