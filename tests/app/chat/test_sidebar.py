"""The chats beside the one that is shown, and what the user does with them."""

from __future__ import annotations

import time

import pytest

from app.chat.beginning import Beginning
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from app.chat.widgets.chat_list import ChatList
from app.chat.widgets.sidebar import Sidebar
from engine.messages import Role
from tests.app.chat.driven import Driven, drive

WIDE = (120, 40)
TITLES = ("Hearts of an octopus", "Printing [bold]books[/bold]", "Sheets \x1b[31mfolded")


def three_chats(store: ChatStore) -> None:
    for title in TITLES:
        chat = store.create_chat(ChatSettings(), title, named=True)
        question = store.add_message(chat.id, None, Role.USER, f"About {title}?")
        store.add_message(chat.id, question.id, Role.ASSISTANT, f"All about {title}.")


def listed(driven: Driven) -> list[str]:
    """The lines of the list: headings and titles with their marks."""
    return [str(option.prompt) for option in driven.screen.query_one(ChatList).options]


def stored(driven: Driven, *, archived: bool = False) -> list[str]:
    return [chat.title for chat in driven.screen.session.store.chats(archived=archived)]


@pytest.mark.parametrize(("width", "shown"), [(80, False), (99, False), (100, True), (120, True)])
def test_it_is_there_where_there_is_room(width: int, shown: bool) -> None:
    async def flow(driven: Driven) -> None:
        sidebar = driven.screen.query_one(Sidebar)
        assert sidebar.display == shown
        await driven.pilot.resize_terminal(180 - width, 30)
        await driven.pilot.pause()
        assert sidebar.display == (180 - width >= 100)
        await driven.pilot.resize_terminal(width, 30)
        await driven.pilot.press("ctrl+b")
        assert sidebar.display
        assert sidebar.has_focus_within
        await driven.pilot.press("ctrl+b")
        assert not sidebar.display
        assert driven.composer.has_focus

    drive(flow, size=(width, 30))


def test_titles_are_text() -> None:
    async def flow(driven: Driven) -> None:
        assert listed(driven) == ["Today", "  Sheets ␛[31mfolded", "  Printing [bold]books[/bold]", f"  {TITLES[0]}"]
        assert driven.shows("Printing [bold]books[/bold]")

    drive(flow, size=WIDE, stored=three_chats)


@pytest.mark.parametrize("size", [(80, 24), WIDE])
def test_open_a_chat(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+b", "end", "enter")
        await driven.pilot.pause()
        assert driven.screen.chat.title == TITLES[0]
        assert driven.shows("All about Hearts of an octopus.")
        assert driven.composer.has_focus
        assert driven.screen.query_one(Sidebar).display == (size == WIDE), "it makes room again where it is in the way"
        await driven.pilot.press("alt+up")
        assert driven.screen.chat.title == TITLES[1]
        await driven.pilot.press("ctrl+pagedown", "ctrl+pagedown")
        assert driven.screen.chat.title == TITLES[0], "it is the last one"

    drive(flow, size=size, stored=three_chats)


def test_rename() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+b", "home", "r", "ctrl+u", *"My own", "enter")
        assert stored(driven)[0] == "My own"
        assert listed(driven)[1] == "  My own"
        await driven.pilot.press("r", *"X", "escape")
        assert stored(driven)[0] == "My own"
        assert driven.screen.query_one(ChatList).has_focus

    drive(flow, size=WIDE, stored=three_chats)


def test_pin_and_archive() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+b", "end", "p")
        assert listed(driven)[:3] == ["Pinned", f"  {TITLES[0]}", "Today"]
        await driven.pilot.press("p")
        assert listed(driven)[0] == "Today"
        await driven.pilot.press("home", "a")
        assert stored(driven) == [TITLES[1], TITLES[0]]
        assert len(listed(driven)) == 3
        await driven.pilot.press("A")
        assert driven.shows("Archived chats  1")
        assert stored(driven, archived=True) == [TITLES[2]]
        assert len(listed(driven)) == 2
        await driven.pilot.press("home", "a", "A")
        assert stored(driven) == [TITLES[2], TITLES[1], TITLES[0]]

    drive(flow, size=WIDE, stored=three_chats)


def test_delete_and_undo() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+b", "home", "d", "d")
        assert stored(driven) == [TITLES[0]]
        assert any("'Printing [bold]books[/bold]'" in notice for notice in driven.notices)
        await driven.pilot.press("u")
        assert stored(driven) == [TITLES[1], TITLES[0]]
        await driven.pilot.press("u", "u")
        assert stored(driven) == [TITLES[2], TITLES[1], TITLES[0]]

    drive(flow, size=WIDE, stored=three_chats)


def test_deleting_the_chat_that_is_shown_stops_its_reply() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("Why?")
        await driven.until(lambda: driven.engine.requests)
        driven.engine.requests[0].say("Because")
        chat_id = driven.screen.chat.chat_id
        await driven.pilot.press("ctrl+b", "d")
        await driven.until(lambda: driven.engine.cancelled)
        assert driven.screen.chat.is_draft
        assert chat_id not in driven.screen.attention.replying
        await driven.pilot.press("ctrl+b", "ctrl+b", "u")
        assert driven.screen.session.store.load(chat_id).path()[0].text == "Why?"

    drive(flow, size=WIDE, answer=None)


def test_filter() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+b", "slash", *"prInt [bo")
        assert listed(driven) == ["Today", f"  {TITLES[1]}"]
        await driven.pilot.press("enter", "enter")
        assert driven.screen.chat.title == TITLES[1]
        await driven.pilot.press("ctrl+b", "slash", *"zzz")
        assert listed(driven) == ["No such chat"]
        await driven.pilot.press("escape")
        assert len(listed(driven)) == 4

    drive(flow, size=WIDE, stored=three_chats)


def test_new_chat_and_back() -> None:
    async def flow(driven: Driven) -> None:
        assert not driven.screen.chat.is_draft
        await driven.pilot.press("ctrl+b", "n")
        assert driven.screen.chat.is_draft
        assert driven.composer.has_focus
        await driven.pilot.press("ctrl+b", "escape")
        assert driven.composer.has_focus

    drive(flow, size=WIDE, stored=three_chats, beginning=Beginning(chat_id=2))


def test_marks_of_replies_elsewhere() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("Why?")
        await driven.until(lambda: driven.engine.requests)
        first = driven.screen.chat.chat_id
        await driven.pilot.press("ctrl+n")
        assert listed(driven)[1] == "◌ Why?"
        assert driven.shows("1 more being answered")
        driven.engine.requests[0].say("Because.")
        driven.engine.requests[0].finish()
        await driven.until(lambda: listed(driven)[1] == "● Why?")
        assert driven.shows("1 unread")
        await driven.pilot.press("alt+down")
        assert driven.screen.chat.chat_id == first
        assert listed(driven)[1] == "› Why?"
        assert driven.shows("Because.")
        assert not driven.shows("unread")

    drive(flow, size=WIDE, answer=None)


def test_what_another_instance_stores_appears() -> None:
    async def flow(driven: Driven) -> None:
        with ChatStore() as other:
            three_chats(other)
            await driven.until(lambda: len(listed(driven)) == 4)
            other.rename(1, "Elsewhere")
            await driven.until(lambda: "  Elsewhere" in listed(driven))
            other.delete_chat(2)
            await driven.pilot.press("ctrl+b", "end", "up", "enter")
            assert driven.screen.chat.is_draft or driven.screen.chat.title != TITLES[1]

    drive(flow, size=WIDE)


def test_two_thousand_chats_stay_quick() -> None:
    def fill(store: ChatStore) -> None:
        with store._database.writing() as connection:
            connection.executemany(
                "INSERT INTO chats (title, named, created, updated, settings) VALUES (?, 1, ?, ?, '{}')",
                [(f"Chat {n}", *[f"2025-01-{n % 28 + 1:02}T12:00:00.000+00:00"] * 2) for n in range(2000)],
            )

    async def flow(driven: Driven) -> None:
        sidebar = driven.screen.query_one(Sidebar)
        assert driven.shows("Chats  2,000")
        started = time.perf_counter()
        for _ in range(5):
            sidebar.reload(0)
        seconds = (time.perf_counter() - started) / 5
        assert seconds < 0.5, f"{seconds:.3f} s for a list that is read anew (about 0.03 s on an idle machine)"
        await driven.pilot.press("ctrl+b", "slash", *"chat 1999", "enter", "enter")
        assert driven.screen.chat.title == "Chat 1999"

    drive(flow, size=WIDE, stored=fill)
