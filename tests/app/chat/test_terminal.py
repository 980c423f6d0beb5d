"""The real command with the starter model in a real terminal, for a day."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from app.chat.conversation import Message, MessageState
from app.chat.storage.store import ChatStore
from engine.messages import Role
from tests.app.chat.essays import (
    QUESTION,
    begin_essay,
    settings_for_essays,
    shows_end_of,
    stored_path,
    wait_for_growth,
)
from tests.app.chat.terminal import Terminal

if sys.platform == "win32":
    pytest.skip("a shell in a window is started otherwise there", allow_module_level=True)

LINES = "".join(f"Line {number} of a file that somebody has pasted.\n" for number in range(1, 25_000))


@pytest.fixture(autouse=True)
def settings(folders: Path) -> None:
    settings_for_essays(folders / "config")


def stop(terminal: Terminal, key: str = "Escape") -> None:
    costs = stored_path()[-1].figures
    terminal.press(key)
    terminal.wait_until(lambda: stored_path()[-1].state is MessageState.STOPPED, "the end of the reply")
    terminal.wait_until(lambda: stored_path()[-1].figures != costs, "what it has cost")
    terminal.wait_until(lambda: shows_end_of(terminal, stored_path()[-1]), "what was stored, on the screen")
    assert stored_path()[-1].text


def wait_for_path(terminal: Terminal, path: list[Message]) -> None:
    terminal.wait_until(lambda: stored_path() == path, "another branch")
    terminal.wait_until(lambda: shows_end_of(terminal, path[-1]), "another branch, on the screen")


def search(terminal: Terminal, words: str) -> None:
    terminal.press("C-f")
    terminal.wait_for("Search all chats")
    terminal.type(words)
    terminal.wait_until(lambda: re.search(r"[1-9]\d* found", terminal.text()), "what was found")
    terminal.press("Enter")


def test_a_day_in_a_terminal() -> None:
    with Terminal(90, 30) as terminal:
        terminal.octavo("chat")
        terminal.wait_for("Starter model")
        terminal.press("Enter")
        terminal.wait_until(lambda: "Starter model" not in terminal.text(), "the end of the welcome")
        terminal.say(QUESTION)
        wait_for_growth(terminal)
        stop(terminal)
        first = stored_path()

        terminal.say("/regen")
        terminal.wait_for("‹ 2/2 ›")
        wait_for_growth(terminal)
        terminal.resize(60, 20)
        wait_for_growth(terminal)
        terminal.resize(97, 40)
        wait_for_growth(terminal)
        terminal.resize(90, 30)
        stop(terminal, "C-c")
        second = stored_path()
        assert second[0] == first[0]
        assert second[1].parent == first[1].parent

        terminal.say("/edit")
        terminal.wait_for("Editing an earlier message")
        terminal.say(" And about quokkas.")
        terminal.wait_until(lambda: stored_path()[0].text == f"{QUESTION} And about quokkas.", "the edited message")
        wait_for_growth(terminal)
        stop(terminal)
        edited = stored_path()

        for path, step in ((second, "prev"), (first, "prev"), (second, "next")):
            terminal.say(f"/branch {step}")
            wait_for_path(terminal, path)
        search(terminal, "quokka")
        wait_for_path(terminal, edited)
        terminal.press("Escape")
        terminal.wait_until(lambda: "esc back" not in terminal.text(), "the composer again")

        terminal.press("F2")
        terminal.wait_for("blocks of 16 tokens")
        terminal.press("F2")
        terminal.say("/quit")
        assert terminal.exit_code() == 0
        assert terminal.is_as_before()

        terminal.octavo("chat", "--continue")
        terminal.wait_until(lambda: shows_end_of(terminal, edited[-1]), "the chat as it was")
        terminal.press("F5")
        wait_for_growth(terminal)
        stop(terminal)
        resumed = stored_path()[-1].text
        assert resumed.startswith(edited[-1].text)
        assert len(resumed) > len(edited[-1].text)
        terminal.press("C-q")
        assert terminal.exit_code() == 0


def test_long_texts(starter_path: Path) -> None:
    with Terminal(90, 30) as terminal:
        terminal.octavo("chat", str(starter_path))
        terminal.wait_for("Write a message")
        assert len(LINES) > 1_000_000
        terminal.paste(LINES)
        terminal.wait_for("[Pasted text #1: 1.1 MiB, 24,999 lines]")
        terminal.press("BSpace")
        terminal.wait_until(lambda: "Pasted" not in terminal.text(), "an empty composer")

        terminal.paste(LINES[:20_000])
        terminal.wait_for("[Pasted text #2")
        terminal.press("Enter")
        terminal.wait_for("Reading")
        terminal.press("C-c")
        terminal.wait_for("stopped")
        terminal.wait_until(lambda: stored_path()[-1].figures, "what it has cost")
        question, reply = stored_path()
        assert question.text == LINES[:20_000]
        assert (reply.state, reply.text) == (MessageState.STOPPED, "")
        assert reply.figures is not None
        assert reply.figures.generated_tokens == 0

        terminal.press("C-n")
        terminal.wait_until(lambda: "stopped" not in terminal.text(), "another chat")
        terminal.say(QUESTION)
        wait_for_growth(terminal)
        terminal.press("C-q")
        assert terminal.exit_code() == 0
        assert terminal.is_as_before()


def test_two_at_once_of_which_one_is_killed(starter_path: Path) -> None:
    with Terminal(90, 30) as one, Terminal(90, 30) as other:
        begin_essay(one, starter_path)
        begin_essay(other, starter_path)
        for chat_id in (1, 2):
            one.wait_until(lambda: stored_path(chat_id)[-1].text, "a paragraph on the disk")  # noqa: B023
        app, engine = one.app(), one.engine()
        os.kill(app, signal.SIGKILL)
        one.wait_for_end_of(app, engine)
        question, reply = stored_path(1)
        assert (question.role, question.text) == (Role.USER, QUESTION)
        assert reply.state is MessageState.INTERRUPTED
        assert reply.text.endswith("\n\n"), "up to the end of a paragraph"
        wait_for_growth(other)
        other.press("C-q")
        assert other.exit_code() == 0
        assert stored_path(2)[-1].state is MessageState.STOPPED

        other.octavo("chat", "--chat", "1")
        other.wait_for("interrupted")
        other.wait_until(lambda: shows_end_of(other, reply), "what was saved")
        other.press("F5")
        wait_for_growth(other)
        other.press("C-q")
        assert other.exit_code() == 0
        assert stored_path(1)[-1].text.startswith(reply.text)
    with ChatStore() as store:
        assert len(store.chats()) == 2
