"""The tables change by named steps, each as a whole; several instances may start at once, and any may be killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.database import Database
from app.chat.storage.migrations import MIGRATIONS, Migration, migrate
from app.chat.storage.search import searchable
from app.chat.storage.store import ChatStore
from engine.messages import Role
from tests.app.command import ROOT

MORE = Migration("colours", ("ALTER TABLE chats ADD COLUMN colour TEXT", "UPDATE chats SET colour = 'red'"))
BROKEN = Migration("broken", ("ALTER TABLE chats ADD COLUMN size TEXT", "UPDATE chats SET no_such_column = 1"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with one message."""
    file = tmp_path / "chats.db"
    with ChatStore(file) as store:
        chat = store.create_chat(ChatSettings(), "Title")
        store.add_message(chat.id, None, Role.USER, "Hello")
    return file


@contextmanager
def opened(file: Path) -> Iterator[Database]:
    database = Database(file)
    try:
        database.define("searchable", searchable)
        yield database
    finally:
        database.close()


def apply(file: Path, migrations: Sequence[Migration]) -> None:
    with opened(file) as database:
        migrate(database, migrations)


def schema(file: Path) -> list[tuple[str, ...]]:
    """All tables, and the names of the migrations."""
    with opened(file) as database, database.reading() as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        return [*tables, *connection.execute("SELECT name FROM migrations ORDER BY name")]


def test_every_step_has_its_own_name() -> None:
    assert len({migration.name for migration in MIGRATIONS}) == len(MIGRATIONS)


def test_steps_are_taken_once_and_keep_what_is_there(file: Path) -> None:
    apply(file, [*MIGRATIONS, MORE])
    apply(file, [*MIGRATIONS, MORE])
    with opened(file) as database, database.reading() as connection:
        assert connection.execute("SELECT title, colour FROM chats").fetchall() == [("Title", "red")]
        names = [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY rowid")]
    assert names == [*(migration.name for migration in MIGRATIONS), "colours"]


def test_a_store_of_a_newer_version_is_refused_and_left_alone(file: Path) -> None:
    apply(file, [*MIGRATIONS, MORE])
    before = schema(file)
    with pytest.raises(StoreError, match="newer version of Octavo: update this one"):
        ChatStore(file)
    assert schema(file) == before
    assert sorted(path.name for path in file.parent.iterdir()) == ["chats.db", "chats.db-running"]


def test_a_step_that_fails_leaves_the_tables_as_they_were(file: Path) -> None:
    before = schema(file)
    with pytest.raises(StoreError, match="no_such_column"):
        apply(file, [*MIGRATIONS, BROKEN])
    assert schema(file) == before
    with ChatStore(file) as store:
        assert [chat.title for chat in store.chats()] == ["Title"]


def test_a_killed_step_leaves_the_tables_as_they_were(file: Path) -> None:
    """Killed between two statements of it, with so much changed that some of it has reached the disk."""
    before = schema(file)
    code = """if True:
        import sys, time
        from pathlib import Path
        from app.chat.storage.database import Database
        from app.chat.storage.migrations import MIGRATIONS, Migration, migrate
        def wait(text):
            print(text, flush=True)
            sys.stdin.read()
            return text
        database = Database(Path(sys.argv[1]))
        database.define("wait", wait)
        migrate(database, [*MIGRATIONS, Migration("killed", (
            "ALTER TABLE chats ADD COLUMN colour TEXT",
            "CREATE TABLE bulk AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
            "SELECT i, hex(randomblob(400)) AS x FROM n",
            "SELECT wait('half way')",
            "UPDATE chats SET colour = 'red'",
        ))])"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half way\n"
        assert file.with_name("chats.db-wal").stat().st_size > 1_000_000
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert schema(file) == before
    with ChatStore(file) as store:
        assert [chat.title for chat in store.chats()] == ["Title"]


def test_many_instances_may_start_at_once(tmp_path: Path) -> None:
    """On a folder without a file: one of them makes the tables, and all use them."""
    file = tmp_path / "new" / "chats.db"
    code = """if True:
        import sys
        from pathlib import Path
        from app.chat.preferences.settings import ChatSettings
        from app.chat.storage.store import ChatStore
        print("ready", flush=True)
        sys.stdin.readline()
        with ChatStore(Path(sys.argv[1])) as store:
            store.create_chat(ChatSettings(), sys.argv[2])"""
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(file), str(number)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(6)
    ]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write(b"\n")
        starter.stdin.flush()
    for starter in starters:
        with starter:
            starter.communicate()
        assert starter.returncode == 0
    with ChatStore(file) as store:
        assert sorted(chat.title for chat in store.chats()) == [str(number) for number in range(6)]
    assert os.listdir(tmp_path / "new" / "chats.db-running") == []


def test_a_python_without_full_text_search_is_told(tmp_path: Path) -> None:
    """A table in the way of SQLite's own list of modules stands for a library that was built without FTS5."""
    file = tmp_path / "chats.db"
    with opened(file) as database:
        with database.writing() as connection:
            connection.execute("CREATE TEMP TABLE pragma_module_list (name TEXT)")
        with pytest.raises(StoreError, match="no full-text search"):
            migrate(database)
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == []
    connection.close()
