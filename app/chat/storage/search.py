"""Finding chats and messages by their words, in SQLite's full-text index (FTS5) of app/chat/storage/migrations.py.

FTS5 takes a run of letters for a word. Chinese, Japanese, Thai and others write without spaces between words: there,
every character is made a word of its own, in the index as in what is looked for, and a word becomes a phrase of them.
"""

from __future__ import annotations

import re
import secrets
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # Japanese kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese characters
    "]+"
)
_BREAK = "\u200b"
"""Zero-width space: ends a word, and is not seen."""

_SNIPPET_WORDS = 24
_SNIPPED_BY_INDEX = 20_000
"""Characters of a message up to which SQLite makes the snippet: its time grows with the square of the matches."""

_SNIPPET_CHARACTERS = 48
"""On each side of the match, in a snippet of a longer message."""

_CHATS = """
    SELECT chats.id, NULL, chats.title, snippet(chat_index, 0, :open, :close, '…', :words), created
    FROM chat_index JOIN chats ON chats.id = chat_index.rowid
    WHERE chat_index MATCH :match AND deleted_at IS NULL
    ORDER BY chat_index.rowid DESC LIMIT :limit"""
_MESSAGES = """
    SELECT chats.id, messages.id, chats.title, CASE WHEN length(messages.text) > :longest
        THEN long_snippet(messages.text) ELSE snippet(message_index, 0, :open, :close, '…', :words) END,
        messages.created
    FROM message_index JOIN messages ON messages.id = message_index.rowid JOIN chats ON chats.id = chat_id
    WHERE message_index MATCH :match AND deletion IS NULL AND deleted_at IS NULL
    ORDER BY message_index.rowid DESC LIMIT :limit"""


class SearchHit(NamedTuple):
    """Where words were found: the first of them in `match`, with some text around it; three dots stand for more.

    message_id: None if it is the title of the chat. The texts are as they were written, not made safe for a terminal.
    """

    chat_id: int
    message_id: int | None
    title: str
    before: str
    match: str
    after: str
    created: datetime


def searchable(text: str) -> str:
    """The text as it goes into the index."""
    if text.isascii():
        return text
    return _UNSPACED.sub(lambda run: f"{_BREAK}{_BREAK.join(run[0])}{_BREAK}", text)


def find(connection: sqlite3.Connection, words: str, limit: int) -> Iterator[SearchHit]:
    """Chats with all the words in their title, then messages, the newest first; none without a word.

    The last word may be the beginning of a longer one. Deleted chats and messages are not found, archived ones are, and
    replies when they have ended.
    """
    match = _query(words)
    if not match:
        return
    opening, closing = (f"{_BREAK}{secrets.token_hex(8)}{_BREAK}" for _ in range(2))  # in no text
    values: dict[str, object] = {"match": match, "open": opening, "close": closing, "words": _SNIPPET_WORDS}
    values["longest"] = _SNIPPED_BY_INDEX
    connection.create_function("long_snippet", 1, lambda text: _snippet(text, words.split(), opening, closing))
    for statement in (_CHATS, _MESSAGES):
        for chat_id, message_id, title, snippet, created in connection.execute(statement, values | {"limit": limit}):
            limit -= 1
            before, _, rest = snippet.partition(opening)
            found, _, after = rest.replace(opening, "").partition(closing)
            before, found, after = (part.replace(closing, "").replace(_BREAK, "") for part in (before, found, after))
            yield SearchHit(chat_id, message_id, title, before, found, after, datetime.fromisoformat(created))


def _snippet(text: str, words: list[str], opening: str, closing: str) -> str:
    """The first of the words that the text has, with some text around it.

    It is the beginning of the text where it has them with other accents only, which SQLite's index does not mind.
    """
    for word in words:
        if found := re.search(rf"(?<!\w){re.escape(word)}", text, re.IGNORECASE):
            start, end = max(0, found.start() - _SNIPPET_CHARACTERS), found.end() + _SNIPPET_CHARACTERS
            before, after = text[start : found.start()], text[found.end() : end]
            return f"{'…' * (start > 0)}{before}{opening}{found[0]}{closing}{after}{'…' * (end < len(text))}"
    return f"{text[:_SNIPPET_CHARACTERS]}…{opening}{closing}"


def _query(words: str) -> str:
    """What the user typed as an FTS5 expression, in which nothing of it is syntax."""
    quoted = [f'"{word}"' for word in searchable(words.replace("\0", " ")).replace('"', " ").split()]
    return " ".join(quoted) + "*" if quoted else ""
