"""The list of chats under headings."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from app.chat.preferences.settings import ChatSettings
from app.chat.storage.rows import ChatSummary
from app.chat.wording.chat_groups import day_name, filtered, grouped

TODAY = date(2025, 3, 5)  # a Wednesday


def summary(chat_id: int, days_ago: int, *, pinned: bool = False, title: str = "") -> ChatSummary:
    moment = datetime(2025, 3, 5, 12, tzinfo=UTC) - timedelta(days=days_ago)
    return ChatSummary(chat_id, title, True, pinned, False, moment, moment, ChatSettings())


@pytest.mark.parametrize(
    ("day", "name"),
    [
        (date(2025, 3, 6), "Today"),  # a clock that was put back
        (date(2025, 3, 5), "Today"),
        (date(2025, 3, 4), "Yesterday"),
        (date(2025, 3, 3), "Monday"),
        (date(2025, 2, 27), "Thursday"),
        (date(2025, 2, 26), "February"),
        (date(2025, 1, 1), "January"),
        (date(2024, 12, 31), "December 2024"),
    ],
)
def test_names_of_days(day: date, name: str) -> None:
    assert day_name(day, TODAY) == name


def test_order_is_kept_and_pinned_chats_have_their_own_heading() -> None:
    chats = [summary(1, 400, pinned=True), summary(2, 0, pinned=True), summary(3, 0), summary(4, 1), summary(5, 1)]
    groups = grouped(chats, TODAY)
    assert [(group.heading, [chat.id for chat in group.chats]) for group in groups] == [
        ("Pinned", [1, 2]),
        ("Today", [3]),
        ("Yesterday", [4, 5]),
    ]
    assert grouped([], TODAY) == []


def test_filter() -> None:
    chats = [summary(1, 0, title="Three hearts of an OCTOPUS"), summary(2, 0, title="Straße"), summary(3, 0)]
    assert [chat.id for chat in filtered(chats, "octo heart")] == [1]
    assert [chat.id for chat in filtered(chats, "STRASSE")] == [2]
    assert [chat.id for chat in filtered(chats, "  ")] == [1, 2, 3]
    assert filtered(chats, "[") == []
