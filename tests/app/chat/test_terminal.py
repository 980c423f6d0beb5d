"""The whole of it: the real command with the starter model, in a real terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from app.chat.store import ChatStore
from engine.messages import Role
from tests.app.chat.terminal import Terminal, children, is_running
from tests.app.command import octavo

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")

SETTINGS = "[chat]\ntemperature = 0\ncontext = 2048\nthreads = 1\n"


@pytest.fixture(autouse=True)
def settings(folders: Path) -> None:
    (folders / "config").mkdir(parents=True)
    (folders / "config" / "octavo.toml").write_text(SETTINGS)


@pytest.fixture
def chatting() -> Iterator[Terminal]:
    """The app, in which a long reply is being written."""
    with Terminal("chat") as terminal:
        terminal.wait_for("Starter model")
        terminal.press("enter")
        terminal.wait_for("Write a message")
        terminal.enter("Write a long story about a ship.")
        terminal.wait_until(lambda: n_words(terminal) > 40, what="a reply")
        yield terminal


def n_words(terminal: Terminal) -> int:
    return len(re.findall(r"\w+", terminal.text()))


def stored() -> list[tuple[Role, MessageState, str]]:
    with ChatStore() as store:
        (chat,) = store.chats()
        return [(message.role, message.state, message.text) for message in store.load(chat.id).path()]


def test_a_day_in_a_terminal(chatting: Terminal) -> None:
    engines = children(chatting.process.pid)
    assert engines
    chatting.press("escape")
    chatting.wait_for("stopped")
    chatting.enter("/regen")
    chatting.wait_for("2/2")
    chatting.press("escape")
    chatting.enter("/edit")
    chatting.wait_for("│ Write a long story")
    chatting.press("end", *" And a bird.", "enter")
    chatting.wait_for("story about a ship. And a bird.")
    chatting.press("escape")
    chatting.enter("/branch prev")
    chatting.wait_until(lambda: "And a bird." not in chatting.text(), what="the branch before")
    chatting.resize((80, 24))
    chatting.wait_for("Write a message")
    chatting.press("ctrl+f", *"ship bird")
    chatting.wait_for("1 found")
    chatting.press("enter")
    chatting.wait_for("story about a ship. And a bird.")
    chatting.press("f2")
    chatting.wait_for("blocks of 16 tokens")
    chatting.press("f2")
    chatting.enter("/quit")
    assert chatting.exit_code() == 0
    assert chatting.is_as_before()
    assert not any(map(is_running, engines))

    with Terminal("chat", "--continue") as terminal:
        terminal.wait_for("story about a ship. And a bird.")
        before = stored()[-1]
        assert before[1] is MessageState.STOPPED
        terminal.enter("/continue")
        terminal.wait_until(lambda: len(stored()[-1][2]) > len(before[2]) or not stored()[-1][1].endswith("ed"))
        terminal.press("escape", "ctrl+q")
        assert terminal.exit_code() == 0
        assert stored()[-1][2].startswith(before[2])


def test_a_killed_app_loses_at_most_the_last_paragraph(chatting: Terminal) -> None:
    chatting.wait_until(lambda: stored()[-1][2], what="a paragraph on the disk")
    engines = children(chatting.process.pid)
    kept = stored()[-1][2]
    os.kill(chatting.process.pid, signal.SIGKILL)
    assert chatting.process.wait(20) == -signal.SIGKILL
    chatting.wait_until(lambda: not any(map(is_running, engines)), what="the end of the engine")
    role, state, text = stored()[-1]
    assert (role, state) == (Role.ASSISTANT, MessageState.INTERRUPTED)
    assert text.startswith(kept)

    with Terminal("chat", "--chat", "1") as terminal:
        terminal.wait_for("interrupted")
        terminal.press("f5")
        terminal.wait_until(lambda: "interrupted" not in terminal.text(), what="the rest of the reply")
        terminal.press("ctrl+q")
        assert terminal.exit_code() == 0
        assert stored()[-1][2].startswith(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_the_terminal_is_as_before(chatting: Terminal, number: signal.Signals) -> None:
    engines = children(chatting.process.pid)
    os.kill(chatting.process.pid, number)
    assert chatting.exit_code() == 128 + number
    assert chatting.is_as_before()
    assert not any(map(is_running, engines))
    assert stored()[-1][1] is MessageState.STOPPED
    assert stored()[-1][2]


def test_a_closed_window_ends_it(chatting: Terminal) -> None:
    engines = children(chatting.process.pid)
    chatting.hang_up()
    assert chatting.process.wait(20) == 128 + signal.SIGHUP
    assert not any(map(is_running, engines))
    assert stored()[-1][1] is MessageState.STOPPED
    assert stored()[-1][2]


def test_an_engine_that_is_killed(chatting: Terminal) -> None:
    (engine,) = children(chatting.process.pid)
    os.kill(engine, signal.SIGKILL)
    chatting.wait_for("the engine has stopped")
    chatting.wait_for("F5")
    chatting.press("f5")
    chatting.wait_until(lambda: "the engine has stopped" not in chatting.text(), what="another engine")
    (another,) = children(chatting.process.pid)
    assert another != engine
    chatting.press("ctrl+q")
    assert chatting.exit_code() == 0


FAILING = """
from app.chat.app import ChatApp
from app.chat.runner import run
from app.chat.settings import AppSettings
from app.chat.store import ChatStore
import os, sys

class Failing(ChatApp):
    def action_help(self):
        os.write(2, b"native code complains")
        print("a library complains", file=sys.stderr)
        raise RuntimeError("a defect")

with ChatStore() as store:
    sys.exit(run(Failing(store, AppSettings())))
"""


def test_a_defect_leaves_the_terminal_as_before_and_tells_of_itself() -> None:
    with Terminal("-c", FAILING, program=(sys.executable,)) as terminal:
        terminal.wait_for("Write a message")
        engines = children(terminal.process.pid)
        os.write(terminal._ours, b"\x1bOP")
        assert terminal.exit_code() == 1
        assert terminal.is_as_before()
        after = terminal.output.rpartition(b"\x1b[?1049l")[2]
        assert b"a defect" in after
        assert b"complains" not in terminal.output.replace(b'b"native code complains"', b"").replace(
            b'"a library complains"', b""
        )
        assert not any(map(is_running, engines))


@pytest.mark.parametrize("arguments", [(), ("chat",), ("chat", "--continue")])
def test_without_a_terminal(arguments: tuple[str, ...]) -> None:
    result = octavo(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "octavo run" in line


def test_a_dumb_terminal() -> None:
    with Terminal(variables={"TERM": "dumb"}) as terminal:
        assert terminal.exit_code() == 2
        assert b"octavo run" in terminal.output
        assert b"\x1b[" not in terminal.output


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("chat", "--continue"), 1, "There is no chat to continue"),
        (("chat", "--chat", "nothing"), 1, "No chat is called 'nothing'"),
        (("chat", "missing.gguf"), 1, "missing.gguf"),
        (("chat", "--continue", "--chat", "x"), 2, "either --continue or --chat"),
    ],
)
def test_what_cannot_be_opened_is_told_without_a_screen(arguments: tuple[str, ...], code: int, sentence: str) -> None:
    with Terminal(*arguments) as terminal:
        assert terminal.exit_code() == code
        assert sentence in terminal.output.decode()
        assert b"\x1b[?1049h" not in terminal.output


def test_problems_of_the_settings_are_told(folders: Path) -> None:
    (folders / "config" / "octavo.toml").write_text("colour = 1\n")
    with Terminal() as terminal:
        terminal.wait_for("colour")
        terminal.press("ctrl+q")
        assert terminal.exit_code() == 0
