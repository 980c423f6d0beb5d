"""What tests put into a store of chats, and look up in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from app.chat.conversation import ReplyFigures
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.rows import ChatSummary
from app.chat.storage.store import ChatStore
from engine.config import KvType
from engine.messages import Role

SETTINGS = ChatSettings(model="Qwen3-4B-Q4_K_M", temperature=0.0, kv_type=KvType.Q8_0, thinking=False)
FIGURES = ReplyFigures("Qwen3-4B", 120, 512, 16, 0.25, 31.5, thought_s=2.0)


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
