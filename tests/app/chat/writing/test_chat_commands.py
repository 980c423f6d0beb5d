"""The slash commands, the model picker, the settings and the command palette, as a user meets them."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, Static

from app.chat.choosing.model_choices import model_choices
from app.chat.conversation import MessageState
from app.chat.preferences.settings import AppSettings, ChatSettings
from app.chat.screens.picker import PickerScreen
from app.chat.screens.search import SearchScreen
from app.chat.screens.settings import SettingsScreen
from app.chat.widgets.pool_panel import PoolPanel
from engine.sequence import FinishReason
from models.catalogue import Catalogue, Origin
from tests.app.chat.driven import Driven, drive


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the app was started."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


async def picked(driven: Driven) -> PickerScreen:
    """The list that is open, when it has its choices."""
    await driven.pilot.app.workers.wait_for_complete()
    await driven.pilot.pause()
    assert isinstance(driven.app.screen, PickerScreen)
    return driven.app.screen


def test_messages() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("/regen")
        assert driven.composer.text == "/regen"
        await driven.send("/branch")
        await driven.send("/continue")
        await driven.send("/edit")
        await driven.send("/copy")
        await driven.send("/delete")
        assert len(driven.notices) == 6
        assert driven.engine.requests == []
        await driven.send("question")
        conversation = driven.screen.chat.conversation
        await driven.send("/regen")
        assert len(conversation.messages) == 3
        newest = conversation.leaf
        await driven.send("/branch prev")
        assert conversation.leaf != newest
        await driven.send("/branch prev")
        assert driven.notices[-1] == "There is no earlier branch here."
        await driven.send("/branch next")
        assert conversation.leaf == newest
        await driven.send("/branch sideways")
        assert "give next or prev" in driven.notices[-1]
        driven.composer.clear()
        await driven.send("/edit")
        assert driven.composer.text == "question"
        await driven.type(" again", "enter")
        assert driven.sent() == ["question again"]

    drive(flow)


def test_a_branch_from_the_list() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        first = driven.screen.chat.conversation.leaf
        await driven.send("/regen")
        await driven.send("/branch")
        assert len((await picked(driven))._shown) == 2
        await driven.type("", "up", "enter")
        assert driven.screen.chat.conversation.leaf == first
        await driven.send("/branch")
        await picked(driven)
        await driven.type("", "escape")
        assert driven.screen.chat.conversation.leaf == first

    drive(flow)


def test_going_on_with_a_reply() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        driven.engine.requests[0].say("The beginning")
        driven.engine.requests[0].finish(FinishReason.LENGTH)
        await driven.settle()
        await driven.send("/continue")
        assert driven.replies[-1].request.continued == "The beginning"

    drive(flow, answer=None, settings=AppSettings(ChatSettings(max_tokens=21)))


def test_copying() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        await driven.send("/copy")
        assert driven.app.clipboard == "Use this:\n\n```\ncode\n```\n"
        await driven.send("/copy code")
        assert driven.app.clipboard == "code\n"
        await driven.send("/copy all")
        assert "/copy cannot take 'all'" in driven.notices[-1]

    drive(flow, answer=lambda _: "Use this:\n\n```\ncode\n```\n")


def test_saving(work: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("a question")
        await driven.send("/title My chat")
        await driven.send("/save")
        assert (
            work / "My-chat.md"
        ).read_text() == "# My chat\n\n## You\n\na question\n\n## Model\n\nAn answer.\n".replace(
            "## Model\n\n", "## Model\n\n" + _model_line(driven)
        )
        await driven.send("/save all.json")
        assert [message["text"] for message in json.loads((work / "all.json").read_text())["messages"]] == [
            "a question",
            "An answer.",
        ]
        for wrong in ("/save all.json", "/save chat.pdf", "/save nowhere/chat.md"):
            await driven.send(wrong)
            assert driven.composer.text == wrong
        assert len(driven.notices) == 5
        assert sorted(os.listdir(work)) == ["My-chat.md", "all.json"]

    drive(flow)


def _model_line(driven: Driven) -> str:
    figures = driven.screen.chat.conversation.path()[-1].figures
    assert figures is not None
    return f"*{figures.model}*\n\n"


def test_chats() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("a question")
        await driven.send("/title  My   chat")
        store, chat_id = driven.app.session.store, driven.screen.chat.chat_id
        assert store.summary(chat_id).title == "My chat"
        await driven.send("/new")
        assert driven.screen.chat.is_draft
        await driven.send("/search question")
        assert isinstance(driven.app.screen, SearchScreen)
        await driven.type("", "enter")
        assert driven.screen.chat.chat_id == chat_id
        await driven.send("/delete")
        assert store.chats() == []
        assert driven.screen.chat.is_draft
        await driven.send("/stats")
        assert driven.screen.query_one(PoolPanel).display

    drive(flow)


def test_settings_of_the_chat() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("/set temperature 0.25")
        await driven.send("/set top_k")
        await driven.send("/system You are\na pirate.")
        await driven.send("/think off")
        settings = driven.screen.chat.settings
        assert settings == ChatSettings(temperature=0.25, system="You are\na pirate.", thinking=False)
        assert driven.notices[:2] == ["temperature is 0.25.", "top_k is 40."]
        await driven.send("/set temperature default")
        await driven.send("/set temperature hot")
        assert driven.notices[-1] == "temperature cannot be 'hot': give a number from 0 to 100."
        assert driven.composer.text == "/set temperature hot"
        await driven.send("/set temperatur 1")
        assert driven.notices[-1] == "'temperatur' is no setting: use temperature."
        await driven.send("/think maybe")
        await driven.send("/system")
        assert driven.composer.text.startswith("/system You are\na pirate.")
        driven.composer.clear()
        await driven.send("hello")
        request = driven.engine.requests[0].request
        assert request.sampling.temperature == ChatSettings().temperature
        assert [getattr(message, "content", None) for message in request.prompt] == ["You are\na pirate.", "hello"]
        stored = driven.app.session.store.summary(driven.screen.chat.chat_id).settings
        assert stored == driven.screen.chat.settings

    drive(flow)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_settings_screen(size: tuple[int, int], folders: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("", "f4", "down", "down")
        screen = driven.app.screen
        assert isinstance(screen, SettingsScreen)
        note = screen.query_one(".note", Static)
        assert "a number from 0 to 100" in str(note.content)
        for widget in (screen.query_one(OptionList), note, screen.query_one(".usage")):
            assert widget.region.height > 0
            assert screen.region.contains_region(widget.region)
        await driven.type("", "enter")
        line = screen.query_one(Input)
        line.value = "hot"
        await driven.type("", "enter")
        assert "temperature cannot be 'hot'" in str(note.content)
        assert driven.screen.chat.settings == ChatSettings()
        line.value = "0.5"
        await driven.type("", "enter")
        assert driven.screen.chat.settings.temperature == 0.5
        await driven.type("", "f4", "enter")
        line.value = "0.75"
        await driven.type("", "enter", "escape")
        assert driven.app.screen is driven.screen
        assert tomllib.loads((folders / "config" / "octavo.toml").read_text()) == {"chat": {"temperature": 0.75}}
        assert driven.app.session.new_chat().settings.temperature == 0.75
        assert driven.screen.chat.settings.temperature == 0.5
        await driven.type("", "f4", "down", "down", "delete", "escape")
        assert driven.screen.chat.settings.temperature == ChatSettings().temperature

    drive(flow, size=size)


def test_defaults_that_cannot_be_written(folders: Path) -> None:
    folders.mkdir(exist_ok=True)
    (folders / "config").write_text("a file")

    async def flow(driven: Driven) -> None:
        await driven.type("", "f4", "f4", "enter")
        screen = driven.app.screen
        screen.query_one(Input).value = "no-such-model"
        await driven.type("", "enter")
        assert "There is no model file 'no-such-model'" in str(screen.query_one(".note", Static).content)
        await driven.type("", "escape", "down", "enter")
        screen.query_one(Input).value = "Be brief."
        await driven.type("", "enter")
        assert "The settings cannot be written" in str(screen.query_one(".note", Static).content)
        assert driven.app.session.defaults == ChatSettings()

    drive(flow)


@pytest.fixture
def installed(tiny_model: Callable[..., Path]) -> Path:
    """Two models by name, the file of one of which has gone; returns the other's."""
    here, gone = tiny_model(), tiny_model("qwen3")
    Catalogue().add("tiny", [here], Origin.LINKED, str(here))
    Catalogue().add("gone", [gone], Origin.LINKED, str(gone))
    gone.unlink()
    return here


@pytest.mark.usefixtures("installed")
def test_what_the_model_picker_says() -> None:
    choices = {choice.key: choice for choice in model_choices()}
    tiny, gone = choices["tiny"], choices["gone"]
    assert tiny.is_usable
    assert tiny.details.split(" · ")[0].split()[1] in ("KiB", "MiB")
    assert " · F32 · paged · fits " in tiny.details
    assert not gone.is_usable
    assert "is not there any more" in gone.details


def test_choosing_a_model(installed: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("", "ctrl+o")
        picker = await picked(driven)
        picker.query_one(Input).value = "tin"
        await driven.pilot.pause()
        await driven.type("", "enter")
        assert driven.screen.chat.settings.model == "tiny"
        assert driven.engine.opened[-1][0] == installed
        await driven.send("/model gone")
        assert "is not there any more" in driven.notices[-1]
        assert driven.screen.chat.settings.model == "tiny"
        assert driven.composer.text == "/model gone"
        await driven.send("/model default")
        await driven.send("/set model default")
        assert driven.screen.chat.settings.model is None

    drive(flow)


@pytest.mark.usefixtures("installed")
def test_a_model_that_has_gone_cannot_be_chosen() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("/model")
        picker = await picked(driven)
        picker.query_one(Input).value = "gone"
        await driven.pilot.pause()
        await driven.type("", "enter")
        assert driven.app.screen is picker
        picker.query_one(Input).value = "xyz"
        await driven.pilot.pause()
        assert str(picker.query_one(".note", Static).content) == "Nothing has these words."

    drive(flow)


def test_the_command_palette() -> None:
    async def flow(driven: Driven) -> None:
        for words, expected in (("begin a new chat", ""), ("give this chat a title", "/title ")):
            await driven.send("hello")
            await driven.type("", "ctrl+p")
            driven.app.screen.query_one(Input).value = words
            await driven.app.workers.wait_for_complete()
            await driven.pilot.pause(0.3)
            await driven.type("", "enter")
            await driven.pilot.pause()
            assert driven.composer.text == expected
        assert not driven.screen.chat.is_draft

    drive(flow)


def test_stopping_and_leaving() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        await driven.type("", "escape")
        assert driven.screen.chat.conversation.path()[-1].state is MessageState.STOPPED
        await driven.send("again")
        await driven.type("", "ctrl+c")
        assert driven.screen.chat.conversation.path()[-1].state is MessageState.STOPPED
        await driven.send("/quit")
        assert driven.app._exit

    drive(flow, answer=None, settings=AppSettings())


def test_what_has_only_blank_lines_is_not_sent() -> None:
    async def flow(driven: Driven) -> None:
        driven.composer.insert_pasted("\n" * 20)
        await driven.pilot.press("enter")
        assert "blank lines" in driven.notices[-1]
        assert driven.screen.chat.is_draft
        driven.composer.load_text("/title ")
        driven.composer.move_cursor(driven.composer.document.end)
        driven.composer.insert_pasted(" " * 3_000)
        await driven.pilot.press("enter")
        assert "title of spaces" in driven.notices[-1]

    drive(flow)


def test_a_name_that_is_too_long_for_a_file(work: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        await driven.send(f"/save {'n' * 300}.md")
        assert "too long" in driven.notices[-1]
        assert list(work.iterdir()) == []

    drive(flow)


def test_a_long_value_is_told_by_its_beginning() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("/set system " + "be brief " * 3_000)
        assert len(driven.notices[-1]) < 120

    drive(flow)


def test_every_deletion_can_be_undone_in_its_chat() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("question")
        chat = driven.screen.chat
        for _ in range(2):
            await driven.pilot.press("shift+tab", "d")
        assert chat.conversation.messages == {}
        await driven.pilot.press("ctrl+n", "alt+u")
        assert "nothing to bring back" in driven.notices[-1]
        await driven.screen.open_chat(chat.chat_id)
        await driven.pilot.press("alt+u", "alt+u")
        assert len(driven.screen.chat.conversation.messages) == 2

    drive(flow)
