"""The list of chats under headings: pinned ones, then by the day of the last message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from app.chat.storage.rows import ChatSummary

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


class ChatGroup(NamedTuple):
    """Chats under one heading, in the order of the list."""

    heading: str
    chats: list[ChatSummary]


def today() -> date:
    """The day that it is where the user is."""
    return datetime.now().astimezone().date()


def grouped(chats: Sequence[ChatSummary], today: date) -> list[ChatGroup]:
    """Group a list that begins with the pinned chats and goes on from the newest to the oldest."""
    groups: list[ChatGroup] = []
    for chat in chats:
        heading = "Pinned" if chat.pinned else day_name(chat.updated.astimezone().date(), today)
        if not groups or groups[-1].heading != heading:
            groups.append(ChatGroup(heading, []))
        groups[-1].chats.append(chat)
    return groups


def day_name(day: date, today: date) -> str:
    """A day of the last week by its name, one before that by its month."""
    if day >= today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    if today - day < timedelta(days=7):
        return _DAYS[day.weekday()]
    month = _MONTHS[day.month - 1]
    return month if day.year == today.year else f"{month} {day.year}"


def filtered(chats: Iterable[ChatSummary], words: str) -> list[ChatSummary]:
    """Those with all the words in their titles, in whatever case."""
    wanted = words.casefold().split()
    return [chat for chat in chats if all(word in chat.title.casefold() for word in wanted)]
