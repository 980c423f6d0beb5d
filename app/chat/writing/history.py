"""What the user has sent before, to send again: a file in the data folder that all instances of the app share."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from app.chat.errors import StoreError
from app.chat.storage.database import Database
from app.chat.storage.rows import characters
from models.folders import data_folder

_MOST = 1_000
"""Prompts that are kept."""

_LONGEST = 100_000
"""Characters of a prompt that is kept: a longer one came from a file or a clipboard, which still has it."""


class PromptHistory:
    """Prompts, the newest last. What begins with a space is private, as in a shell, and not kept.

    When the file cannot be used, prompts are kept in memory alone.
    """

    def __init__(self, path: Path | None = None) -> None:
        """path: None is prompts.db in the data folder."""
        self._path = path or data_folder() / "prompts.db"
        self._unsaved: list[str] = []
        self._database: Database | None = None

    def add(self, prompt: str) -> None:
        """Keep a prompt, once if it is the same as the one before. Raises StoreError; it is in memory even then."""
        prompt = characters(prompt)
        if not prompt.strip() or prompt.startswith(" ") or len(prompt) > _LONGEST:
            return
        self._unsaved.append(prompt)
        with self._opened().writing() as connection:
            for unsaved in self._unsaved:
                _insert(connection, unsaved)
            connection.execute("DELETE FROM prompts WHERE id <= (SELECT max(id) FROM prompts) - ?", (_MOST,))
        self._unsaved.clear()

    def prompts(self) -> list[str]:
        """All that is kept, those of other instances too. Raises nothing: without the file it is what memory has."""
        try:
            with self._opened().reading() as connection:
                saved = [text for (text,) in connection.execute("SELECT text FROM prompts ORDER BY id")]
        except StoreError:
            saved = []
        return [*saved, *self._unsaved]

    def close(self) -> None:
        """Give the file back."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> Database:
        if self._database is None:
            database = Database(self._path)
            with database.writing() as connection:
                connection.execute("CREATE TABLE IF NOT EXISTS prompts (id INTEGER PRIMARY KEY, text TEXT NOT NULL)")
            self._database = database
        return self._database


def _insert(connection: sqlite3.Connection, prompt: str) -> None:
    last = connection.execute("SELECT text FROM prompts ORDER BY id DESC LIMIT 1").fetchone()
    if last is None or last[0] != prompt:
        connection.execute("INSERT INTO prompts (text) VALUES (?)", (prompt,))
