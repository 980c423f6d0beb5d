"""The tables of the stored chats, as the named changes that made them.

A change is never edited once it is released: another one follows it. Columns that may be long come last, as SQLite
reads a row from its beginning.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from app.chat.errors import StoreError
from app.chat.files import quoted_path
from app.chat.storage.database import Database


class Migration(NamedTuple):
    """A change of the tables, which happens as a whole or not at all."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS = (
    Migration(
        "chats and messages",
        (
            """CREATE TABLE chats (
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                title TEXT NOT NULL,
                named INTEGER NOT NULL,  -- whether the title is more than a first guess
                pinned INTEGER NOT NULL DEFAULT 0,
                archived INTEGER NOT NULL DEFAULT 0,
                leaf INTEGER,  -- message at the end of the path that is shown
                start INTEGER,  -- first message that the model still reads, NULL is the first of all
                created TEXT NOT NULL,  -- times: ISO 8601, UTC
                updated TEXT NOT NULL,  -- when its last message was added
                deleted_at TEXT,
                settings TEXT NOT NULL  -- JSON
            )""",
            """CREATE TABLE deletions (  -- of messages; each can be undone
                id INTEGER PRIMARY KEY AUTOINCREMENT,
                chat_id INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
                deleted_at TEXT NOT NULL,
                leaf INTEGER,  -- of the chat, before
                start INTEGER
            )""",
            """CREATE TABLE messages (
                id INTEGER PRIMARY KEY AUTOINCREMENT,  -- above that of its parent
                chat_id INTEGER NOT NULL REFERENCES chats ON DELETE CASCADE,
                parent INTEGER,
                deletion INTEGER,  -- by which it was deleted, NULL is not
                role TEXT NOT NULL,
                state TEXT NOT NULL,
                writer TEXT,  -- instance of the app that has it 'streaming'
                created TEXT NOT NULL,
                figures TEXT,  -- JSON
                text TEXT NOT NULL
            )""",
            "CREATE INDEX messages_of_chat ON messages (chat_id)",
            "CREATE INDEX messages_deleted ON messages (deletion) WHERE deletion IS NOT NULL",
            "CREATE INDEX messages_streaming ON messages (writer) WHERE state = 'streaming'",
        ),
    ),
    Migration(
        "search",  # `searchable` is search.py's; when it changes, another migration has to rebuild the index
        (
            "CREATE VIEW searchable_chats AS SELECT id, searchable(title) AS title FROM chats",
            """CREATE VIEW searchable_messages AS  -- not what is still being written, at every paragraph anew
                SELECT id, searchable(text) AS text FROM messages WHERE state <> 'streaming'""",
            """CREATE VIRTUAL TABLE chat_index USING fts5(
                title, content = 'searchable_chats', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
            )""",
            """CREATE VIRTUAL TABLE message_index USING fts5(
                text, content = 'searchable_messages', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
            )""",
            """CREATE TRIGGER chat_added AFTER INSERT ON chats BEGIN
                INSERT INTO chat_index (rowid, title) VALUES (new.id, searchable(new.title));
            END""",
            """CREATE TRIGGER chat_renamed AFTER UPDATE OF title ON chats BEGIN
                INSERT INTO chat_index (chat_index, rowid, title) VALUES ('delete', old.id, searchable(old.title));
                INSERT INTO chat_index (rowid, title) VALUES (new.id, searchable(new.title));
            END""",
            """CREATE TRIGGER chat_purged AFTER DELETE ON chats BEGIN
                INSERT INTO chat_index (chat_index, rowid, title) VALUES ('delete', old.id, searchable(old.title));
            END""",
            """CREATE TRIGGER message_added AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN
                INSERT INTO message_index (rowid, text) VALUES (new.id, searchable(new.text));
            END""",
            """CREATE TRIGGER message_changed AFTER UPDATE OF text, state ON messages
            WHEN old.text <> new.text OR (old.state = 'streaming') <> (new.state = 'streaming') BEGIN
                INSERT INTO message_index (message_index, rowid, text)
                    SELECT 'delete', old.id, searchable(old.text) WHERE old.state <> 'streaming';
                INSERT INTO message_index (rowid, text)
                    SELECT new.id, searchable(new.text) WHERE new.state <> 'streaming';
            END""",
            """CREATE TRIGGER message_purged AFTER DELETE ON messages WHEN old.state <> 'streaming' BEGIN
                INSERT INTO message_index (message_index, rowid, text)
                    VALUES ('delete', old.id, searchable(old.text));
            END""",
        ),
    ),
)


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Make the tables what the last migration says. Raises StoreError, also when a newer Octavo has changed them."""
    known = {migration.name for migration in migrations}
    while True:
        with database.writing() as connection:
            applied = _applied(connection)
            if not applied <= known:
                raise StoreError(
                    f"The stored chats, {quoted_path(database.path)}, were last used by a newer version of Octavo: "
                    "update this one."
                )
            missing = [migration for migration in migrations if migration.name not in applied]
            if not missing:
                return
            _require_full_text_search(connection)
            for statement in missing[0].statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?)", (missing[0].name, datetime.now(UTC).isoformat()))


def _applied(connection: sqlite3.Connection) -> set[str]:
    connection.execute("CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied TEXT NOT NULL)")
    return {name for (name,) in connection.execute("SELECT name FROM migrations")}


def _require_full_text_search(connection: sqlite3.Connection) -> None:
    if not connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone():
        raise StoreError(
            f"The SQLite {sqlite3.sqlite_version} of this Python has no full-text search (FTS5), which the chats are "
            "stored with: use a Python whose SQLite has it, such as that of python.org or of conda."
        )
