"""All chats, on disk: one SQLite file in the data folder, which several instances of the app use at once.

Every method is one short transaction, so that none of them undoes what another instance has done meanwhile. What is
deleted stays for a month, to be restored.
"""

from __future__ import annotations

import contextlib
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from app.chat.conversation import Conversation, Message, MessageState, ReplyFigures
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.database import Database
from app.chat.storage.migrations import migrate
from app.chat.storage.presence import Presence
from app.chat.storage.rows import (
    MESSAGE_COLUMNS,
    SUMMARY_COLUMNS,
    ChatSummary,
    characters,
    damaged,
    figures_json,
    message_of,
    now,
    settings_json,
    summary_of,
    time_text,
)
from app.chat.storage.search import SearchHit, find, searchable
from engine.messages import Role
from models.folders import data_folder

_KEPT = timedelta(days=30)
"""How long a deleted chat or message can be restored."""


class ChatStore:
    """Chats and their messages. To be used by one thread; every method raises StoreError.

    A message that is STREAMING is written by one instance of the app. When that has ended without a word
    (app/chat/storage/presence.py), whoever opens the store or loads the chat next makes the message INTERRUPTED.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Opens the file, and makes it if it is missing. path: None is chats.db in the data folder."""
        path = path or data_folder() / "chats.db"
        with contextlib.ExitStack() as closing:
            self._database = Database(path)
            closing.callback(self._database.close)
            self._database.define("searchable", searchable)
            migrate(self._database)
            with self._database.writing() as connection:  # one instance at a time, as Presence demands
                self._presence = Presence(path.with_name(f"{path.name}-running"))
                closing.callback(self._presence.close)
                self._presence.remove_the_dead()
                self._end_interrupted(connection)
                _purge(connection)
            self._version = self._database.version()
            self._closing = closing.pop_all()

    # --- chats ---

    def chats(self, *, archived: bool = False) -> list[ChatSummary]:
        """Those that are archived, or those that are not: pinned ones first, then the one with the newest message."""
        order = "ORDER BY pinned DESC, updated DESC, id DESC"
        with self._database.reading() as connection:
            rows = connection.execute(
                f"SELECT {SUMMARY_COLUMNS} FROM chats WHERE deleted_at IS NULL AND archived = ? {order}", (archived,)
            )
            return [summary_of(row) for row in rows]

    def summary(self, chat_id: int) -> ChatSummary:
        """One chat."""
        with self._database.reading() as connection:
            return _summary(connection, chat_id)

    def create_chat(self, settings: ChatSettings, title: str = "", *, named: bool = False) -> ChatSummary:
        """An empty chat. named: whether the title is more than a first guess."""
        with self._database.writing() as connection:
            moment = now()
            chat_id = connection.execute(
                "INSERT INTO chats (title, named, created, updated, settings) VALUES (?, ?, ?, ?, ?)",
                (characters(title), named, moment, moment, settings_json(settings)),
            ).lastrowid
            assert chat_id is not None
            return _summary(connection, chat_id)

    def rename(self, chat_id: int, title: str, *, named: bool = True) -> None:
        """Give a chat another title. named: whether it is more than a first guess."""
        self._change_chat(chat_id, "title = ?, named = ?", characters(title), named)

    def suggest_title(self, chat_id: int, title: str) -> bool:
        """Put a title in place of a first guess; False where the chat has a better one by now, or is deleted."""
        with self._database.writing() as connection:
            statement = "UPDATE chats SET title = ?, named = TRUE WHERE id = ? AND NOT named AND deleted_at IS NULL"
            return connection.execute(statement, (characters(title), chat_id)).rowcount > 0

    def pin(self, chat_id: int, pinned: bool) -> None:
        """Put a chat before those that are not pinned, or back among them."""
        self._change_chat(chat_id, "pinned = ?", pinned)

    def archive(self, chat_id: int, archived: bool) -> None:
        """Take a chat out of the list of current ones, or put it back."""
        self._change_chat(chat_id, "archived = ?", archived)

    def save_settings(self, chat_id: int, settings: ChatSettings) -> None:
        """Replace the settings of a chat."""
        self._change_chat(chat_id, "settings = ?", settings_json(settings))

    def delete_chat(self, chat_id: int) -> None:
        """Until it is restored or a month has passed, the chat is neither listed nor found."""
        self._change_chat(chat_id, "deleted_at = ?", now())

    def restore_chat(self, chat_id: int) -> None:
        """Undo `delete_chat`."""
        with self._database.writing() as connection:
            changed = connection.execute("UPDATE chats SET deleted_at = NULL WHERE id = ?", (chat_id,)).rowcount
            if not changed:
                raise StoreError("This chat was deleted more than 30 days ago: it cannot be restored.")

    # --- messages ---

    def load(self, chat_id: int) -> Conversation:
        """A chat with all its messages."""
        with self._database.reading() as connection:
            _require_chat(connection, chat_id)
            if not self._interrupted_writers(connection, chat_id):
                return _conversation(connection, chat_id)
        with self._database.writing() as connection:
            self._end_interrupted(connection)
        return self.load(chat_id)

    def add_message(
        self, chat_id: int, parent: int | None, role: Role, text: str, state: MessageState = MessageState.COMPLETE
    ) -> Message:
        """Put a message under `parent`, None for a root; it is the leaf, and on the disk when this returns."""
        with self._database.writing() as connection:
            _require_chat(connection, chat_id)
            if parent is not None:
                _require_message(connection, chat_id, parent)
            moment = now()
            message_id = connection.execute(
                "INSERT INTO messages (chat_id, parent, role, state, writer, created, text)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (chat_id, parent, role, state, self._presence.name, moment, characters(text)),
            ).lastrowid
            connection.execute("UPDATE chats SET leaf = ?, updated = ? WHERE id = ?", (message_id, moment, chat_id))
            return message_of(
                connection.execute(f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id = ?", (message_id,)).fetchone()
            )

    def update_message(
        self,
        message_id: int,
        *,
        text: str | None = None,
        state: MessageState | None = None,
        figures: ReplyFigures | None = None,
    ) -> None:
        """Change what is not None, also of a deleted message. Refused while another instance is writing it."""
        changes = {
            "writer": self._presence.name,
            "text": None if text is None else characters(text),
            "state": state,
            "figures": None if figures is None else figures_json(figures),
        }
        given = {column: value for column, value in changes.items() if value is not None}
        with self._database.writing() as connection:
            row = connection.execute("SELECT state, writer FROM messages WHERE id = ?", (message_id,)).fetchone()
            if row is None:
                raise StoreError("This message was deleted more than 30 days ago: its text cannot be stored.")
            was, writer = row
            if was == MessageState.STREAMING and writer != self._presence.name and self._presence.is_running(writer):
                raise StoreError("This reply is being written in another window: wait until it is complete.")
            assignments = ", ".join(f"{column} = :{column}" for column in given)
            connection.execute(f"UPDATE messages SET {assignments} WHERE id = :id", given | {"id": message_id})

    def set_leaf(self, chat_id: int, message_id: int) -> None:
        """Let the path that is shown end at this message."""
        with self._database.writing() as connection:
            _require_message(connection, chat_id, message_id)
            connection.execute("UPDATE chats SET leaf = ? WHERE id = ?", (message_id, chat_id))

    def set_start(self, chat_id: int, message_id: int | None) -> None:
        """Let the model read the chat from this message on; None is all of it."""
        with self._database.writing() as connection:
            if message_id is not None:
                _require_message(connection, chat_id, message_id)
            connection.execute("UPDATE chats SET start = ? WHERE id = ?", (message_id, chat_id))

    def delete_messages(self, chat_id: int, message_id: int) -> int:
        """Delete a message and all that follow it, as Conversation.remove does; returns what to undo it with."""
        with self._database.writing() as connection:
            _require_chat(connection, chat_id)
            conversation = _conversation(connection, chat_id)
            if message_id not in conversation.messages:
                raise StoreError("This message has been deleted already, perhaps in another window.")
            deletion = connection.execute(
                "INSERT INTO deletions (chat_id, deleted_at, leaf, start) VALUES (?, ?, ?, ?)",
                (chat_id, now(), conversation.leaf, conversation.start),
            ).lastrowid
            assert deletion is not None
            removed = conversation.remove(message_id)
            connection.executemany(
                "UPDATE messages SET deletion = ? WHERE id = ?", [(deletion, removed_id) for removed_id in removed]
            )
            _store_ends(connection, conversation)
            return deletion

    def restore_messages(self, deletion: int) -> None:
        """Undo `delete_messages`, and show the path of then. What a message followed comes back with it."""
        with self._database.writing() as connection:
            row = connection.execute("SELECT chat_id, leaf, start FROM deletions WHERE id = ?", (deletion,)).fetchone()
            if row is None:
                raise StoreError("These messages are restored already, or were deleted more than 30 days ago.")
            chat_id, leaf, start = row
            (top,) = connection.execute("SELECT min(id) FROM messages WHERE deletion = ?", (deletion,)).fetchone()
            connection.execute(
                """WITH RECURSIVE restored (id) AS (
                    SELECT id FROM messages WHERE deletion = ?
                    UNION SELECT parent FROM messages JOIN restored USING (id) WHERE parent IS NOT NULL
                ) UPDATE messages SET deletion = NULL WHERE id IN restored AND deletion IS NOT NULL""",
                (deletion,),
            )
            connection.execute("DELETE FROM deletions WHERE id = ?", (deletion,))
            conversation = _conversation(connection, chat_id)
            if leaf in conversation.messages:
                conversation.leaf = leaf
            elif conversation.leaf is None:
                conversation.leaf = conversation.newest_leaf(top)
            if start in conversation.messages:
                conversation.start = start
            _store_ends(connection, conversation)

    # --- all ---

    def search(self, words: str, limit: int = 50) -> list[SearchHit]:
        """What has all the words, the last of which may be unfinished: chats by title, then the newest messages."""
        with self._database.reading() as connection:
            return list(find(connection, characters(words), limit))

    def changed(self) -> bool:
        """Whether another instance has written something since the last call; takes microseconds."""
        before, self._version = self._version, self._database.version()
        return self._version != before

    def close(self) -> None:
        """Give the file back. What this instance still has STREAMING counts as interrupted from now on."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _change_chat(self, chat_id: int, assignments: str, *values: str | bool) -> None:
        with self._database.writing() as connection:
            _require_chat(connection, chat_id)
            connection.execute(f"UPDATE chats SET {assignments} WHERE id = ?", (*values, chat_id))

    def _interrupted_writers(self, connection: sqlite3.Connection, chat_id: int | None = None) -> list[str]:
        """Instances that have ended and left a message STREAMING, in one chat or in any."""
        writers = connection.execute(
            "SELECT DISTINCT writer FROM messages WHERE state = 'streaming' AND ifnull(chat_id = ?, TRUE)", (chat_id,)
        ).fetchall()
        return [writer for (writer,) in writers if not self._presence.is_running(writer)]

    def _end_interrupted(self, connection: sqlite3.Connection) -> None:
        for writer in self._interrupted_writers(connection):
            connection.execute(
                "UPDATE messages SET state = ? WHERE state = 'streaming' AND writer = ?",
                (MessageState.INTERRUPTED, writer),
            )


def _require_chat(connection: sqlite3.Connection, chat_id: int) -> None:
    if not connection.execute("SELECT 1 FROM chats WHERE id = ? AND deleted_at IS NULL", (chat_id,)).fetchone():
        raise StoreError("This chat has been deleted, perhaps in another window: restore it, or begin a new one.")


def _summary(connection: sqlite3.Connection, chat_id: int) -> ChatSummary:
    _require_chat(connection, chat_id)
    return summary_of(connection.execute(f"SELECT {SUMMARY_COLUMNS} FROM chats WHERE id = ?", (chat_id,)).fetchone())


def _require_message(connection: sqlite3.Connection, chat_id: int, message_id: int) -> None:
    found = connection.execute(
        "SELECT 1 FROM messages WHERE id = ? AND chat_id = ? AND deletion IS NULL", (message_id, chat_id)
    ).fetchone()
    if not found:
        raise StoreError("This message has been deleted, perhaps in another window: go on from another one.")


def _conversation(connection: sqlite3.Connection, chat_id: int) -> Conversation:
    """The messages that are not deleted, parents before what follows them."""
    leaf, start = connection.execute("SELECT leaf, start FROM chats WHERE id = ?", (chat_id,)).fetchone()
    rows = connection.execute(
        f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat_id = ? AND deletion IS NULL ORDER BY id", (chat_id,)
    )
    conversation = Conversation(chat_id, leaf=leaf, start=start)
    for row in rows:
        message = message_of(row)
        if message.parent is not None and message.parent not in conversation.messages:
            raise damaged(f"message {message.id} follows none")
        conversation.put(message)
    if leaf is not None and leaf not in conversation.messages:
        raise damaged(f"chat {chat_id} has no message {leaf}")
    return conversation


def _store_ends(connection: sqlite3.Connection, conversation: Conversation) -> None:
    connection.execute(
        "UPDATE chats SET leaf = ?, start = ? WHERE id = ?",
        (conversation.leaf, conversation.start, conversation.chat_id),
    )


def _purge(connection: sqlite3.Connection) -> None:
    """Remove for good what was deleted long ago."""
    before = (time_text(datetime.now(UTC) - _KEPT),)
    connection.execute("DELETE FROM messages WHERE deletion IN (SELECT id FROM deletions WHERE deleted_at < ?)", before)
    connection.execute("DELETE FROM deletions WHERE deleted_at < ?", before)
    connection.execute("DELETE FROM chats WHERE deleted_at < ?", before)
