"""Files that a message mentions: which are meant, what is sent, and what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from app.chat.errors import ComposeError
from app.chat.writing.attachments import LIMIT, fenced, mentions, message_text, read_text
from app.chat.writing.pastes import Pastes
from app.chat.writing.paths import complete_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("notes.md", "my file.txt", "prog.py", ".hidden", "Ünï.txt", "a(1).txt"):
        (tmp_path / name).write_text(f"content of {name}\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.txt").write_text("deep")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@notes.md", ["notes.md"]),
        ("read @notes.md, please", ["notes.md"]),
        ("(see @notes.md)", ["notes.md"]),
        ("@a(1).txt.", ["a(1).txt"]),
        ('both @"my file.txt" and\n@sub/deep.txt', ["my file.txt", "sub/deep.txt"]),
        ("@Ünï.txt!", ["Ünï.txt"]),
        ("@.hidden", [".hidden"]),
        ("mail me@notes.md", []),
        ("@nobody and @sub and @ and @sub/", []),
        ("@property\ndef x(): ...", []),
        ("```\n@notes.md\n```", []),
        ("```\n@notes.md\n```\n@prog.py", ["prog.py"]),
        ("~~~~\n```\n@notes.md\n~~~~", []),
        ("```\n@notes.md", []),
        ('@"', []),
        ('@"no such file"', []),
        ("@" + "x" * 5000, []),
        ("@no\0body", []),
    ],
)
def test_what_is_a_mention(folder: Path, text: str, names: list[str]) -> None:
    found = mentions(text, folder)
    assert [mention.name for mention in found] == names
    for mention in found:
        assert text[mention.span.start : mention.span.end] in (f"@{mention.name}", f'@"{mention.name}"')
        assert mention.path.is_file()


def test_paths_from_home_and_from_the_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME" if sys.platform != "win32" else "USERPROFILE", str(folder))
    assert [mention.path for mention in mentions(f"@~/notes.md @{folder}/prog.py", Path("/"))] == [
        folder / "notes.md",
        folder / "prog.py",
    ]


def test_what_is_sent(folder: Path) -> None:
    text = message_text("compare @notes.md with @prog.py, and @notes.md again", Pastes(), folder)
    assert text == (
        "compare notes.md with prog.py, and notes.md again\n\n"
        "notes.md:\n```md\ncontent of notes.md\n```\n\n"
        "prog.py:\n```py\ncontent of prog.py\n```"
    )


def test_pasted_texts_attach_nothing(folder: Path) -> None:
    pastes = Pastes()
    placeholder = pastes.fold("@notes.md in a paste")
    assert message_text(f"look: {placeholder} @sub/deep.txt\n\n", pastes, folder) == (
        "look: @notes.md in a paste sub/deep.txt\n\nsub/deep.txt:\n```txt\ndeep\n```"
    )


@pytest.mark.parametrize("content", ["plain", "", "```\ncode\n```\n", "a ```` b\n`````\n", "~~~\n", "\r\n", "x\n\n"])
def test_a_fence_holds_its_file(content: str) -> None:
    tokens = MarkdownIt().parse(fenced("a.py", content) + "\n\nafter")
    (fence,) = [token for token in tokens if token.type == "fence"]
    expected = content.replace("\r\n", "\n")
    assert fence.content == (expected if expected.endswith("\n") or not expected else expected + "\n")
    assert tokens[-2].content == "after"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x89PNG\r\n", "is not UTF-8 text (byte 1)"),
        (b"text\0more", "is binary (byte 5 is 0)"),
        (b"x" * (LIMIT + 1), "has 1.0 MiB, and at most 1.0 MiB can be attached"),
    ],
)
def test_what_cannot_be_attached(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "file.bin").write_bytes(content)
    with pytest.raises(ComposeError) as caught:
        message_text("see @file.bin", Pastes(), tmp_path)
    assert words in str(caught.value)
    assert str(tmp_path / "file.bin") in str(caught.value)


def test_the_largest_file(tmp_path: Path) -> None:
    (tmp_path / "largest").write_bytes(b"x" * LIMIT)
    assert len(read_text(tmp_path / "largest")) == LIMIT


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the owner may always read")
def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(ComposeError, match="cannot be read"):
        read_text(tmp_path / "secret")


def test_a_file_that_has_gone(tmp_path: Path) -> None:
    with pytest.raises(ComposeError, match="cannot be read \\(No such file"):
        read_text(tmp_path / "gone")


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("", ["sub/", "a(1).txt", "my file.txt", "notes.md", "prog.py", "Ünï.txt"]),
        (".", [".hidden"]),
        ("N", ["notes.md"]),
        ("sub", ["sub/"]),
        ("sub/", ["sub/deep.txt"]),
        ("./sub/d", ["./sub/deep.txt"]),
        ("nowhere/", []),
        ("notes.md/", []),
        ("\0", []),
    ],
)
def test_completing_paths(folder: Path, typed: str, paths: list[str]) -> None:
    assert [choice.path for choice in complete_path(typed, folder)] == paths


def test_completing_from_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME" if sys.platform != "win32" else "USERPROFILE", str(folder))
    assert [choice.path for choice in complete_path("~/no", Path("/"))] == ["~/notes.md"]
