"""Rows of the stored chats as plain data, and back."""

from __future__ import annotations

import functools
import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from app.chat.conversation import Message, MessageState, ReplyFigures
from app.chat.errors import StoreError
from app.chat.preferences.settings import ChatSettings
from engine.messages import Role
from engine.printable import one_line

SUMMARY_COLUMNS = "id, title, named, pinned, archived, created, updated, settings"
MESSAGE_COLUMNS = "id, parent, role, text, state, created, figures"


@dataclass(frozen=True)
class ChatSummary:
    """A chat without its messages.

    named: whether the title is more than a first guess. updated: when its last message was added. Times are UTC.
    """

    id: int
    title: str
    named: bool
    pinned: bool
    archived: bool
    created: datetime
    updated: datetime
    settings: ChatSettings


def summary_of(row: tuple[Any, ...]) -> ChatSummary:
    """From SUMMARY_COLUMNS. Raises StoreError."""
    chat_id, title, named, pinned, archived, created, updated, settings = row
    try:
        times = (datetime.fromisoformat(created), datetime.fromisoformat(updated))
        return ChatSummary(chat_id, title, bool(named), bool(pinned), bool(archived), *times, _settings(settings))
    except (ValueError, TypeError) as error:
        raise damaged(f"chat {chat_id}: {error}") from None


def message_of(row: tuple[Any, ...]) -> Message:
    """From MESSAGE_COLUMNS. Raises StoreError."""
    message_id, parent, role, text, state, created, figures = row
    try:
        cost = _figures(json.loads(figures)) if figures else None
        moment = datetime.fromisoformat(created)
        return Message(message_id, parent, Role(role), text, MessageState(state), moment, cost)
    except (ValueError, TypeError) as error:
        raise damaged(f"message {message_id}: {error}") from None


def damaged(what: str) -> StoreError:
    """About a row that this version of Octavo cannot have written."""
    return StoreError(
        f"A stored chat is damaged, or of a newer version of Octavo ({one_line(what)}): "
        "update Octavo, or delete the chat."
    )


@functools.lru_cache
def _settings(text: str) -> ChatSettings:
    """Most chats have the same."""
    return ChatSettings.from_values(dict(json.loads(text)))


def settings_json(settings: ChatSettings) -> str:
    """For the column `settings`."""
    return json.dumps(settings.values())


def figures_json(figures: ReplyFigures) -> str:
    """For the column `figures`."""
    return json.dumps(asdict(figures))


def characters(text: str) -> str:
    """The text with lone surrogates, which no file can hold, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def now() -> str:
    """This moment, as the tables have it."""
    return time_text(datetime.now(UTC))


def time_text(moment: datetime) -> str:
    """Texts of this form are ordered as the moments are."""
    return moment.isoformat(timespec="microseconds")


def _figures(values: dict[str, Any]) -> ReplyFigures:
    """Without what another version of Octavo has added."""
    return ReplyFigures(**{field.name: values[field.name] for field in fields(ReplyFigures) if field.name in values})
