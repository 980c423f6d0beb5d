"""Nothing is lost, and the app goes on, whatever happens to an engine, a model file or the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from app.chat.errors import StoreError
from app.chat.preferences.settings import AppSettings, ChatSettings
from app.chat.storage.store import ChatStore
from app.chat.widgets.status_bar import StatusBar
from engine.errors import ModelFileError
from engine.messages import Loaded
from tests.app.chat.driven import Driven, drive


def test_an_engine_that_dies_is_started_again_and_the_reply_goes_on() -> None:
    async def flow(driven: Driven) -> None:
        screen = driven.screen
        screen.chat.named = True
        await driven.send("Why?")
        await driven.until(lambda: driven.engine.requests)
        driven.engine.requests[0].say("Because")
        await driven.until(lambda: driven.shows("Because"))
        driven.engine.die()
        await driven.until(lambda: screen.query_one(StatusBar).status.is_down)
        assert driven.shows("F5"), "in the chat"
        assert driven.shows("the engine has stopped")
        assert len([notice for notice in driven.notices if "SIGKILL" in notice]) == 1
        message = screen.chat.conversation.path()[-1]
        assert (message.state, message.text) == (MessageState.FAILED, "Because")
        assert screen.session.store.load(screen.chat.chat_id).path()[-1].text == "Because"

        await driven.pilot.press("f5")
        await driven.until(lambda: len(driven.engine.requests) == 2)
        assert driven.engine.n_loads == 2
        assert driven.engine.requests[1].request.continued == "Because"
        assert not screen.query_one(StatusBar).status.is_down
        driven.engine.requests[1].say(" of gravity.")
        driven.engine.requests[1].finish()
        await driven.until(lambda: driven.shows("Because of gravity."))
        assert screen.chat.conversation.path()[-1].state is MessageState.COMPLETE

    drive(flow, size=(120, 40), answer=None)


def test_an_engine_that_a_request_has_started_again_is_ready_in_the_end() -> None:
    async def flow(driven: Driven) -> None:
        status = driven.screen.query_one(StatusBar)
        await driven.until(lambda: status.status.loaded is not None)
        driven.engine.on_loading(0.5)  # EngineClient starts a process by itself when a request finds none
        await driven.until(lambda: driven.engine.n_loads == 2)
        await driven.until(lambda: status.status.loaded is not None and status.status.loading is None)

    drive(flow, answer=None)


def test_two_chats_lose_one_engine_and_both_go_on() -> None:
    async def flow(driven: Driven) -> None:
        for text in ("One?", "Two?"):
            await driven.pilot.press("ctrl+n")
            driven.screen.chat.named = True
            await driven.send(text)
        await driven.until(lambda: len(driven.engine.requests) == 2)
        driven.engine.die()
        await driven.until(lambda: not driven.screen.attention.replying)
        assert len([notice for notice in driven.notices if "SIGKILL" in notice]) == 1
        await driven.pilot.press("f5")
        await driven.until(lambda: len(driven.engine.requests) == 3)
        await driven.pilot.press("alt+down", "f5")
        await driven.until(lambda: len(driven.engine.requests) == 4)
        assert driven.engine.n_loads == 2

    drive(flow, answer=None)


def test_a_model_that_cannot_be_loaded() -> None:
    problem = ModelFileError("The file 'x.gguf' is damaged: download it again.")
    broken: Iterator[bool] = iter([True, False])

    def loads() -> Loaded:
        if next(broken):
            raise problem
        return Loaded("paged", 2048, None, None)

    async def flow(driven: Driven) -> None:
        await driven.until(lambda: str(problem) in driven.notices)
        assert driven.screen.query_one(StatusBar).status.is_down
        await driven.type("still here")
        assert driven.composer.text == "still here"
        await driven.pilot.press("f5")
        await driven.until(lambda: not driven.screen.query_one(StatusBar).status.is_down)

    drive(flow, loads=loads)


def test_a_model_file_that_is_gone() -> None:
    settings = AppSettings(ChatSettings(model="/nowhere/model.gguf"))

    async def flow(driven: Driven) -> None:
        await driven.until(lambda: any("model.gguf" in notice for notice in driven.notices))
        await driven.send("Why?")
        await driven.until(lambda: driven.screen.chat.conversation.leaf)
        path = driven.screen.chat.conversation.path()
        assert [message.text for message in path] == ["Why?", ""]
        assert path[-1].state is MessageState.FAILED
        assert driven.shows("model.gguf")
        await driven.pilot.press("f5")
        assert driven.engine.requests == []

    drive(flow, size=(120, 40), settings=settings)


def test_a_full_disk_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = StoreError("The chats cannot be written: the disk is full.")
    is_full = False

    def fails(name: str) -> None:
        usual = getattr(ChatStore, name)

        def method(*arguments: object, **more: object) -> object:
            if is_full:
                raise full
            return usual(*arguments, **more)

        monkeypatch.setattr(ChatStore, name, method)

    for name in ("create_chat", "add_message", "update_message", "rename", "pin", "delete_chat"):
        fails(name)

    async def flow(driven: Driven) -> None:
        nonlocal is_full
        screen = driven.screen
        screen.chat.named = True
        await driven.send("Why?")
        await driven.until(lambda: driven.engine.requests)
        is_full = True
        driven.engine.requests[0].say("Because of gravity.\n\nAnd more.")
        await driven.until(lambda: str(full) in driven.notices)
        driven.engine.requests[0].finish()
        await driven.until(lambda: driven.shows("And more."))
        await driven.until(lambda: screen.chat.reply is None)
        await driven.send("And then?")
        assert driven.composer.text == "And then?"
        await driven.pilot.press("ctrl+b", "p", "d", "ctrl+b")
        is_full = False
        await driven.send("And then?")
        await driven.until(lambda: len(driven.engine.requests) == 2)
        assert [message.text for message in screen.session.store.load(screen.chat.chat_id).path()][0::2] == [
            "Why?",
            "And then?",
        ]

    drive(flow, size=(120, 40), answer=None)


def test_the_folder_of_the_starter_model_is_used(starter_path: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.until(lambda: driven.engine.opened)
        assert driven.engine.opened[0][0] == starter_path

    drive(flow)
