"""The SQLite file of the chats: one connection, short transactions, and its errors in words.

The file is written ahead (WAL): readers and a writer do not wait for each other, and a commit, which is on the disk
before it returns, takes one write to it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from app.chat.errors import StoreError
from app.chat.files import quoted_path

_WAIT_S = 2
"""How long a transaction, and the user, wait for one of another instance, which takes some milliseconds."""

_MODE = 0o600


class Database:
    """A connection for one thread. All methods raise StoreError where SQLite or the system refuse their work."""

    def __init__(self, path: Path) -> None:
        """Opens the file, and makes it if it is missing, with its folder."""
        self.path = path
        with self.explained():
            _make(path)
            self._connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)
            try:
                _write_ahead(self._connection)
                for pragma in ("synchronous = FULL", "foreign_keys = ON", "trusted_schema = ON"):
                    self._connection.execute(f"PRAGMA {pragma}")
            except BaseException:
                self._connection.close()
                raise

    def define(self, name: str, function: Callable[[str], str]) -> None:
        """Let the triggers of the tables call a function that always has the same result for the same text."""
        self._connection.create_function(name, 1, function, deterministic=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds the only right to write from its beginning; on the disk when the block has ended."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def version(self) -> int:
        """A number that changes when another connection has written something."""
        with self.explained():
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Give the file back."""
        with self.explained():
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self.explained():
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.commit()
            except BaseException:
                self._connection.rollback()
                raise

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what SQLite and the system say inside the block into StoreError."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.Error as error:
            raise StoreError(_explanation(error, self.path)) from None
        except OSError as error:
            raise StoreError(
                f"The chats cannot be stored in {quoted_path(self.path.parent)} ({error.strerror}): make room there, "
                "or set OCTAVO_DATA_DIR to a folder that you may write to."
            ) from None


def _make(path: Path) -> None:
    """An empty file that only its owner can read: SQLite gives its other files the same mode."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
    try:
        if os.name == "posix" and os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, _MODE)
    finally:
        os.close(descriptor)


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Where several instances find a new file at once, SQLite refuses all but one, and does not wait by itself."""
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)
        else:
            return


def _explanation(error: sqlite3.Error, path: Path) -> str:
    """One sentence. Codes: https://www.sqlite.org/rescode.html, whose lower byte is the kind of error."""
    file = quoted_path(path)
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return f"The disk is full, so that nothing more can be stored in {file}: free some space."
        case sqlite3.SQLITE_IOERR:
            return f"The disk refuses to read or write {file} ({error}): check that it is not full or failing."
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            return f"The stored chats cannot be written ({error}): check that you may write to {file} and its folder."
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return (
                f"The stored chats, {file}, are damaged ({error}): move the file away to begin anew; "
                "`sqlite3 FILE .recover` may save what is in it."
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"Another program keeps {file} locked: close it, or wait, and try again."
    return f"The stored chats, {file}, cannot be used ({error}): move the file away to begin anew."
