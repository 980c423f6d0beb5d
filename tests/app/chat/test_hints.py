"""What the app says names the keys that the user has, and hands nothing on to the terminal."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from app.chat.beginning import Beginning
from app.chat.preferences.settings import AppSettings
from engine.errors import EngineDied, PromptTooLong
from tests.app.chat.driven import Driven, drive

KEYS = {
    "go_on": "f9",
    "make_room": "f10",
    "sidebar_undo": "z",
    "search_close": "f12",
    "welcome_leave": "f11",
    "edge_leave": "f7",
}


def test_hints_name_the_keys_of_the_user() -> None:
    async def flow(driven: Driven) -> None:
        screen = driven.screen
        assert "F9" in screen.failure_text(EngineDied("It died."))
        assert "F10" in screen.failure_text(PromptTooLong("It is long."))
        await driven.send("question")
        await driven.pilot.press("ctrl+f")
        assert driven.shows("F12 close")
        await driven.pilot.press("f12", "ctrl+b")
        assert driven.shows("z undo")
        await driven.pilot.press("d")
        assert "z in the list" in driven.notices[-1]

    drive(flow, size=(120, 40), settings=AppSettings(keys=KEYS))


def test_the_welcome_names_the_keys_of_the_user() -> None:
    async def flow(driven: Driven) -> None:
        await driven.until(lambda: driven.shows("F11"))

    drive(flow, size=(120, 40), settings=AppSettings(keys=KEYS), beginning=Beginning(welcome=True))


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x9b", "\u202e", "\n"])
def test_a_line_to_type_in_draws_control_characters_as_pictures(character: str) -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("ctrl+f")
        driven.app.screen.query_one(Input).value = f"be{character}fore"
        await driven.pilot.pause()
        assert not driven.shows(character)
        assert driven.shows("be")
        assert driven.shows("fore")

    drive(flow)


def test_notices_act_on_no_terminal() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.notify("a\x1b[31mb", markup=False)
        await driven.pilot.pause()
        assert driven.notices[-1] == "a␛[31mb"

    drive(flow)


def test_a_theme_that_is_not_there() -> None:
    async def flow(driven: Driven) -> None:
        assert any("no theme 'nonesuch'" in notice for notice in driven.notices)

    drive(flow, settings=AppSettings(theme="nonesuch"))


def test_a_chat_that_is_not_there_is_told_and_another_begins() -> None:
    async def flow(driven: Driven) -> None:
        assert any("deleted" in notice for notice in driven.notices)
        await driven.send("question")
        assert [message.text for message in driven.screen.chat.conversation.path()] == ["question", "An answer."]

    drive(flow, beginning=Beginning(chat_id=99))
