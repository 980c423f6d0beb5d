"""Replies and titles reach the disk, whatever else happens to their chats meanwhile."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

import pytest

from app.chat.answering.window_edge import LargerWindow, WindowEdge
from app.chat.conversation import MessageState
from engine.sequence import Priority
from models.folders import data_folder
from tests.app.chat.driven import Driven, drive
from tests.app.chat.scripted_engine import ScriptedRequest


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Another program writes to the chats, and does not come to an end."""
    other = sqlite3.connect(data_folder() / "chats.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def title_asked_for(driven: Driven) -> ScriptedRequest:
    return next(one for one in driven.engine.requests if one.request.priority is Priority.BACKGROUND)


def test_a_reply_that_could_not_be_saved_is_saved_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.storage.database._WAIT_S", 0.01)

    async def flow(driven: Driven) -> None:
        chat = driven.screen.chat
        chat.named = True
        await driven.send("Why?")
        reply = driven.replies[0]
        with locked():
            for _ in range(20):
                reply.say("A paragraph.\n\n")
            await driven.settle()
            assert len(driven.notices) == 1, "not at every token"
            reply.finish()
            await driven.settle()
        await driven.send("And then?")
        stored = driven.screen.session.store.load(chat.chat_id).path()
        assert (stored[1].text, stored[1].state) == ("A paragraph.\n\n" * 20, MessageState.COMPLETE)

    drive(flow, answer=None)


def test_a_late_title_does_not_take_the_place_of_the_users() -> None:
    async def flow(driven: Driven) -> None:
        screen = driven.screen
        await driven.send("Why is the sky blue at noon and red in the evening?")
        driven.replies[0].say("Because.")
        driven.replies[0].finish()
        await driven.until(lambda: len(driven.engine.requests) == 2)
        chat_id = screen.chat.chat_id
        await driven.pilot.press("ctrl+n")
        await screen.open_chat(chat_id)
        await driven.send("/title Mine")
        title_asked_for(driven).say("The model's")
        title_asked_for(driven).finish()
        await driven.settle()
        assert screen.session.store.summary(chat_id).title == screen.chat.title == "Mine"

    drive(flow, answer=None)


def test_a_late_title_comes_to_a_chat_that_was_opened_again() -> None:
    async def flow(driven: Driven) -> None:
        screen = driven.screen
        await driven.send("Why is the sky blue at noon and red in the evening?")
        driven.replies[0].say("Because.")
        driven.replies[0].finish()
        await driven.until(lambda: len(driven.engine.requests) == 2)
        chat_id = screen.chat.chat_id
        await driven.pilot.press("ctrl+n")
        await screen.open_chat(chat_id)
        title_asked_for(driven).say("Colours of the sky")
        title_asked_for(driven).finish()
        await driven.until(lambda: screen.chat.title == "Colours of the sky")
        assert screen.session.store.summary(chat_id).title == "Colours of the sky"

    drive(flow, answer=None)


def test_a_larger_window_is_loaded_at_once() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("Why?")
        edge = WindowEdge(driven.screen.session, driven.screen.chat, 2048, 100, None, lambda: None)
        edge.apply(LargerWindow(4096, 0))
        assert [config.context for _, config in driven.engine.opened] == [None, 4096]

    drive(flow)
