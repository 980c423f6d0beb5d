"""However the app ends: the terminal is as it was before, and nothing is left running."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from tests.app.chat.essays import begin_essay, settings_for_essays, stored_path, wait_for_growth
from tests.app.chat.terminal import Terminal
from tests.app.chat.terminal_windows import PtyWindow, TmuxWindow, kinds
from tests.app.command import octavo

if sys.platform == "win32":
    pytest.skip("a shell in a window is started otherwise there", allow_module_level=True)


@pytest.fixture(autouse=True)
def settings(folders: Path) -> None:
    settings_for_essays(folders / "config")


@pytest.mark.parametrize("kind", kinds())
def test_the_terminal_of_these_tests(kind: type[TmuxWindow] | type[PtyWindow]) -> None:
    with Terminal(100, 30, kind=kind) as terminal:
        assert terminal.is_as_before()
        terminal.run(["stty", "size"])
        assert terminal.exit_code() == 0
        terminal.wait_for("30 100")
        terminal.resize(60, 20)
        terminal.run(["sh", "-c", r"stty size; printf '\033[?1049h\033[?25lother'; read line; exit 7"])
        terminal.wait_for("other")
        assert "30 100" not in terminal.text()
        terminal.press("Enter")
        assert terminal.exit_code() == 7
        assert not terminal.is_as_before()
        terminal.run(["printf", r"\033[?1049l\033[?25h"])
        terminal.wait_for("20 60")
        assert terminal.is_as_before()
        terminal.run(["stty", "-echo"])
        assert terminal.exit_code() == 0
        assert not terminal.is_as_before()
        terminal.run(["stty", "echo"])
        terminal.run(["sleep", "1000"])
        terminal.wait_until(terminal.programs, "a program")
        (program,) = terminal.programs()
        terminal.hang_up()
        terminal.wait_for_end_of(program)


def test_a_dead_engine_and_a_signal(starter_path: Path) -> None:
    with Terminal(90, 30) as terminal:
        begin_essay(terminal, starter_path)
        engine = terminal.engine()
        os.kill(engine, signal.SIGKILL)
        terminal.wait_for("the engine has stopped")
        terminal.wait_until(lambda: stored_path()[-1].state is MessageState.FAILED, "the end of the reply")
        before = stored_path()[-1].text
        terminal.press("F5")
        terminal.wait_until(lambda: "the engine has stopped" not in terminal.text(), "another engine")
        wait_for_growth(terminal)
        app, another = terminal.app(), terminal.engine()
        assert another != engine
        os.kill(app, signal.SIGTERM)
        assert terminal.exit_code() == 128 + signal.SIGTERM
        assert terminal.is_as_before()
        terminal.wait_for_end_of(app, another)
        reply = stored_path()[-1]
        assert reply.state is MessageState.STOPPED
        assert reply.text.startswith(before)
        assert len(reply.text) > len(before)


def test_a_closed_window(starter_path: Path) -> None:
    with Terminal(90, 30) as terminal:
        begin_essay(terminal, starter_path)
        app, engine = terminal.app(), terminal.engine()
        terminal.hang_up()
        terminal.wait_for_end_of(app, engine)
        assert stored_path()[-1].state is MessageState.STOPPED
        assert stored_path()[-1].text


FAILING = """
import inspect, os, sys
from app.chat.app import ChatApp
from app.chat.preferences.settings import AppSettings
from app.chat.runner import run
from app.chat.storage.store import ChatStore

class Failing(ChatApp):
    CSS_PATH = [inspect.getfile(ChatApp).replace("app.py", "chat.tcss")]
    def action_help(self):
        os.write(2, b"native code com" + b"plains")
        print("a library com" + "plains", file=sys.stderr)
        raise RuntimeError("a " + "defect")

with ChatStore() as store:
    sys.exit(run(Failing(store, AppSettings())))
"""


def test_a_defect_tells_of_itself_in_a_terminal_that_is_as_before(tmp_path: Path) -> None:
    program = tmp_path / "failing.py"
    program.write_text(FAILING)
    with Terminal(90, 50, variables={"PYTHONPATH": os.getcwd()}) as terminal:
        terminal.run([sys.executable, str(program)])
        terminal.wait_for("Write a message")
        engine = terminal.engine()
        terminal.press("F1")
        assert terminal.exit_code() == 1
        terminal.wait_for_end_of(engine)
        assert "a defect" in terminal.text()
        assert "complains" not in terminal.text()
        assert terminal.is_as_before()


@pytest.mark.parametrize("arguments", [(), ("chat",), ("chat", "--continue")])
def test_without_a_terminal(arguments: tuple[str, ...]) -> None:
    result = octavo(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "octavo run" in line


def test_what_cannot_be_opened_is_told_without_a_screen(folders: Path) -> None:
    with Terminal(160, 40) as terminal:
        for arguments, code, sentence in (
            (("chat", "--continue"), 1, "There is no chat to continue"),
            (("chat", "--chat", "nothing"), 1, "No chat is called 'nothing'"),
            (("chat", "missing.gguf"), 1, "octavo: "),
            (("chat", "--continue", "--chat", "x"), 2, "either --continue or --chat"),
            (("chat",), 2, "octavo run"),
        ):
            is_dumb = arguments == ("chat",)
            terminal.run([*(["env", "TERM=dumb"] if is_dumb else []), sys.executable, "-m", "app", *arguments])
            assert terminal.exit_code() == code
            assert sentence in terminal.text()
            assert terminal.is_as_before()
