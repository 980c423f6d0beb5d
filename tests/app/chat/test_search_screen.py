"""Finding words in all chats, as a user does it."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from app.chat.preferences.settings import ChatSettings
from app.chat.screens.search import SearchScreen
from app.chat.storage.store import ChatStore
from app.chat.widgets.message_view import MessageView
from engine.messages import Role
from tests.app.chat.driven import Driven, drive


def library(store: ChatStore) -> None:
    """A long chat in which one branch that is not shown tells of octopuses, and one whose title does."""
    chat = store.create_chat(ChatSettings(), "Animals [red]of[/red] the sea", named=True)
    first = store.add_message(chat.id, None, Role.USER, "Tell me about animals.")
    store.add_message(chat.id, first.id, Role.ASSISTANT, "An [bold]octopus[/bold] has\nthree hearts \x1b[31m.")
    other = store.add_message(chat.id, first.id, Role.ASSISTANT, "A crab has ten legs.")
    for number in range(20):
        other = store.add_message(chat.id, other.id, Role.USER, f"And then, {number}?\n\nAnd what else?")
        other = store.add_message(chat.id, other.id, Role.ASSISTANT, f"Then came number {number}.\n\nAnd more.")
    store.create_chat(ChatSettings(), "Octopuses in books", named=True)


def hits(driven: Driven) -> list[str]:
    return [str(option.prompt) for option in driven.app.screen.query_one(OptionList).options]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_live_results_and_a_message_on_another_branch(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f", *"octop")
        title, message = hits(driven)
        assert title == "Octopuses in books  Today\nthe title of the chat"
        assert message == "Animals [red]of[/red] the sea  Today\nAn [bold]octopus[/bold] has three hearts ␛[31m."
        assert driven.shows("An [bold]octopus[/bold] has three hearts")
        assert driven.shows("2 found")
        await driven.pilot.press(*"us hea")
        assert hits(driven) == [message]
        await driven.pilot.press("enter")
        await driven.until(lambda: not isinstance(driven.app.screen, SearchScreen))
        await driven.until(lambda: driven.shows("three hearts"))
        assert [one.text[:11] for one in driven.screen.chat.conversation.path()] == ["Tell me abo", "An [bold]oc"]

    drive(flow, size=size, stored=library)


def test_the_message_is_scrolled_to() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f", *"number 2", "enter")
        await driven.until(lambda: driven.shows("Then came number 2."))
        view = driven.screen.focused
        assert isinstance(view, MessageView)
        assert view.message.text.startswith("Then came number 2.")

    drive(flow, stored=library)


def test_choose_another_hit() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f", *"octop", "down", "up", "down", "up", "enter")
        await driven.until(lambda: driven.screen.chat.title == "Octopuses in books")

    drive(flow, stored=library)


@pytest.mark.parametrize("words", ["zebra", '"', "(", "* NOT", "  "])
def test_nothing_is_found(words: str) -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f", *words, "enter")
        assert hits(driven) == []
        assert driven.shows("Nothing is found." if words.strip() else "esc close")
        await driven.pilot.press("escape")
        assert driven.app.screen is driven.screen
        assert driven.composer.has_focus

    drive(flow, stored=library)


def test_a_chat_that_was_deleted_meanwhile() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f", *"octopuses")
        with ChatStore() as other:
            other.delete_chat(2)
        await driven.pilot.press("enter")
        await driven.until(lambda: any("has been deleted" in notice for notice in driven.notices))
        assert driven.screen.chat.is_draft

    drive(flow, stored=library)
