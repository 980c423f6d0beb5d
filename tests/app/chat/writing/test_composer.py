"""Writing, as a user does it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual import events
from textual._xterm_parser import XTermParser

from app.chat.widgets.completion_popup import CompletionPopup
from app.chat.widgets.composer import Composer
from tests.app.chat.driven import Driven, drive

BIG = "0123456789" * 5 + "\n"


def popup(driven: Driven) -> list[str] | None:
    """Labels of the choices that are offered."""
    shown = driven.screen.query_one(CompletionPopup)
    assert shown.display == (shown.completions is not None)
    return None if shown.completions is None else [choice.label for choice in shown.completions.choices]


async def paste(driven: Driven, text: str) -> None:
    driven.composer.post_message(events.Paste(text))
    await driven.pilot.pause()


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_enter_sends_and_other_keys_begin_a_line(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("o", "n", "e", "ctrl+j", "t", "w", "o", "shift+enter")
        await driven.type("three", "alt+enter", "enter")
        assert driven.composer.text == ""
        assert driven.sent() == ["one\ntwo\nthree"]

    drive(flow, size=size)


def test_keys_act_in_their_order() -> None:
    """Also where all of them come at once, as over a slow line."""

    async def flow(driven: Driven) -> None:
        for key in ("o", "n", "e", "alt+enter", "t", "w", "x", "backspace", "o", "enter", "n", "e", "x", "t"):
            driven.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await driven.settle()
        assert driven.sent() == ["one\ntwo"]
        assert driven.composer.text == "next"

    drive(flow)


@pytest.mark.parametrize(
    ("sequence", "key"),
    [
        ("\x1b\r", "alt+enter"),
        ("\x1b[13;3u", "alt+enter"),
        ("\x1b[13;2u", "shift+enter"),
        ("\n", "ctrl+j"),
        ("\r", "enter"),
    ],
)
def test_what_terminals_send(sequence: str, key: str) -> None:
    assert [getattr(event, "key", None) for event in XTermParser().feed(sequence)] == [key]


def test_it_grows_to_a_third_of_the_screen() -> None:
    async def flow(driven: Driven) -> None:
        heights = []
        for _ in range(12):
            heights.append(driven.composer.outer_size.height)
            await driven.type("x", "ctrl+j")
        assert heights[:4] == [3, 4, 5, 6]
        assert heights[-1] == 24 // 3 == max(heights)

    drive(flow, size=(80, 26))


@pytest.mark.parametrize("text", ["", "   ", "\n\n", "/", " / "])
def test_nothing_to_send(text: str) -> None:
    async def flow(driven: Driven) -> None:
        await driven.send(text)
        assert driven.engine.requests == []
        assert driven.composer.text == text
        assert driven.notices == []

    drive(flow)


def test_what_was_sent_comes_back() -> None:
    async def flow(driven: Driven) -> None:
        for text in ("first", "second\nwith two lines", " secret"):
            await driven.send(text)
        await driven.type("unsent", "up")
        assert driven.composer.text == "second\nwith two lines"
        await driven.type("", "up")
        assert driven.composer.text == "second\nwith two lines", "the cursor is not on the first line yet"
        await driven.type("", "up", "up")
        assert driven.composer.text == "first"
        await driven.type("", "down", "down", "down")
        assert driven.composer.text == "unsent"
        await driven.type("", "ctrl+up", "enter")
        assert driven.sent()[-1] == "second\nwith two lines"

    drive(flow)


def test_a_megabyte_is_one_placeholder() -> None:
    text = BIG * 20_600

    async def flow(driven: Driven) -> None:
        await driven.type("look: ")
        await paste(driven, text)
        placeholder = "[Pasted text #1: 1.0 MiB, 20,600 lines]"
        assert driven.composer.text == f"look: {placeholder}"
        await driven.type("", "left", "x")
        assert driven.composer.text == f"look: x{placeholder}"
        await driven.type("", "right", "y", "backspace", "backspace")
        assert driven.composer.text == "look: x"
        await driven.type("", "ctrl+z")
        assert driven.composer.text == f"look: x{placeholder}y"
        await driven.type("", "enter")
        assert driven.sent() == [f"look: x{text}y"]

    drive(flow)


def test_a_placeholder_is_touched_as_a_whole() -> None:
    async def flow(driven: Driven) -> None:
        composer = driven.composer
        await paste(driven, BIG * 11)
        placeholder = composer.text
        composer.move_cursor((0, 5))
        assert composer.cursor_location == (0, 0)
        composer.move_cursor((0, 7))
        assert composer.cursor_location == (0, len(placeholder))
        composer.insert("!", (0, 7))
        assert composer.text == f"{placeholder}!"
        composer.delete((0, 7), (0, 9))
        assert composer.text == "!"

    drive(flow)


def test_unfolding() -> None:
    async def flow(driven: Driven) -> None:
        await paste(driven, "a\r" * 12)
        await driven.type(" and", "ctrl+t")
        assert driven.composer.text.endswith("] and"), "the cursor is not at the placeholder"
        await driven.type("", "home", "ctrl+t")
        assert driven.composer.text == "a\n" * 12 + " and"

    drive(flow)


def test_short_pastes_are_text() -> None:
    async def flow(driven: Driven) -> None:
        await paste(driven, "a\r\nb\x1b[31m")
        assert driven.composer.text == "a\nb\x1b[31m"
        assert "\x1b" not in driven.composer.get_line(1).plain
        assert len(driven.composer.get_line(1).plain) == len("b\x1b[31m")

    drive(flow)


def test_drafts_stay_with_their_chats() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("hello")
        await driven.type("for the first")
        await paste(driven, BIG * 50)
        first, draft = driven.screen.chat, driven.composer.text
        await driven.type("", "ctrl+n")
        assert driven.composer.text == ""
        await driven.type("for the second")
        await driven.screen.show_chat(first)
        assert driven.composer.text == draft
        await driven.type("", "enter")
        assert driven.sent()[-1] == "for the first" + (BIG * 50).rstrip()
        await driven.type("", "ctrl+n")
        assert driven.composer.text == "for the second"

    drive(flow)


def test_editing_an_earlier_message() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("first")
        await driven.send("second")
        first = driven.screen.chat.conversation.path()[0]
        await driven.type("unsent")
        driven.composer.edit_message(first.id, first.text)
        assert "Editing" in str(driven.composer.border_title)
        await driven.type("", "escape")
        assert (driven.composer.text, driven.composer.border_title) == ("unsent", None)
        driven.composer.edit_message(first.id, first.text)
        await driven.type(" again", "enter")
        assert driven.sent() == ["first again"]
        assert driven.composer.text == "unsent"
        assert len(driven.screen.chat.conversation.siblings(first.id)) == 2

    drive(flow)


def test_completing_a_command() -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("/t")
        assert popup(driven) == ["/think on|off|auto", "/title TEXT"]
        await driven.type("", "down", "tab")
        assert (driven.composer.text, popup(driven)) == ("/title ", None)
        driven.composer.clear()
        await driven.type("/thi", "enter")
        assert (driven.composer.text, popup(driven)) == ("/think ", ["on", "off", "auto"])
        await driven.type("of", "enter")
        assert driven.composer.text == ""
        assert driven.screen.chat.settings.thinking is False

    drive(flow)


def test_leaving_a_completion() -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("/sa")
        await driven.type("", "escape")
        assert (driven.composer.text, popup(driven)) == ("/sa", None)
        await driven.type("ve")
        assert popup(driven) == ["/save [FILE]"]
        await driven.type("", "home")
        assert popup(driven) is None
        driven.composer.clear()
        await driven.send("/think on")
        await driven.type("", "up")
        assert (driven.composer.text, popup(driven)) == ("/think on", None), "nobody has typed it"

    drive(flow)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.md").write_text("be brief")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.usefixtures("folder")
def test_attaching_a_file() -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("read @no", "tab")
        assert driven.composer.text == "read @notes.md "
        assert str(driven.composer.border_subtitle) == "notes.md 8 bytes"
        await driven.type("and mail@notes.md", "enter")
        assert driven.sent() == ["read notes.md and mail@notes.md\n\nnotes.md:\n```md\nbe brief\n```"]

    drive(flow)


@pytest.mark.usefixtures("folder")
def test_a_file_that_cannot_be_sent() -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("see @picture.png", "enter")
        assert driven.engine.requests == []
        assert driven.composer.text == "see @picture.png"
        (notice,) = driven.notices
        assert "picture.png' is not UTF-8 text (byte 1)" in notice

    drive(flow)


EDITOR = """
import os, sys
from pathlib import Path
path = Path(sys.argv[-1])
Path(os.environ["SEEN"]).write_text(f"{path}\\n{path.stat().st_mode & 0o777:o}\\n{path.read_text()}")
path.write_text("from the editor\\n")
sys.exit(int(os.environ["CODE"]))
"""


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An editor that notes what it got; and a terminal that can be lent to it."""

    @contextlib.contextmanager
    def lent(_: object) -> Iterator[None]:
        yield

    (tmp_path / "editor.py").write_text(EDITOR)
    monkeypatch.setattr("app.chat.app.ChatApp.suspend", lent)
    monkeypatch.setenv("VISUAL", f"{sys.executable} '{tmp_path / 'editor.py'}'")
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("CODE", "0")
    return tmp_path / "seen"


def test_writing_in_an_editor(editor: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.type("draft ")
        await paste(driven, BIG * 12)
        await driven.type("", "ctrl+g")
        assert driven.composer.text == "from the editor"

    drive(flow)
    path, mode, text = editor.read_text().split("\n", 2)
    assert text == "draft " + BIG * 12
    assert not Path(path).exists()
    if os.name == "posix":
        assert mode == "600"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("CODE", "3", "ended with code 3"),
        ("VISUAL", "no-such-editor -w", "There is no editor 'no-such-editor -w', which $VISUAL names"),
        ("VISUAL", "'unclosed", "which $VISUAL names"),
    ],
)
@pytest.mark.usefixtures("editor")
def test_an_editor_that_fails(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str) -> None:
    monkeypatch.setenv(variable, value)

    async def flow(driven: Driven) -> None:
        await driven.type("draft", "ctrl+g")
        assert driven.composer.text == "draft"
        (notice,) = driven.notices
        assert words in notice

    drive(flow)


def test_what_cannot_be_sent_comes_back() -> None:
    async def flow(driven: Driven) -> None:
        composer: Composer = driven.composer
        composer.load_text("/modle x")
        await driven.pilot.press("enter", "l", "a", "t", "e", "r")
        await driven.pilot.pause()
        assert composer.text in ("/modle x\nlater", "/modle xlater")
        (notice,) = driven.notices
        assert "is it /model?" in notice

    drive(flow)
