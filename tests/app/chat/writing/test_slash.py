"""Slash commands: what is one, what completes it, and that each can be carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat.errors import ComposeError
from app.chat.preferences.settings import ChatSettings
from app.chat.screens.chat_commands import ChatCommands
from app.chat.writing.completion import completions
from app.chat.writing.slash import COMMANDS, Known, as_text, parse

KNOWN = Known(
    models=lambda: ["Qwen3-4B-Q4_K_M", "SmolLM2-135M-Instruct.Q4_1"],
    titles=lambda: ["Holiday plans"],
    settings=lambda: ChatSettings(top_k=7),
)


@pytest.mark.parametrize(
    ("text", "name", "argument"),
    [
        ("/new", "new", ""),
        ("/new  \n", "new", ""),
        ("/Model  some-model ", "model", "some-model"),
        ("/system You are\na pirate.", "system", "You are\na pirate."),
        ("/set system  two  spaces", "set", "system  two  spaces"),
        ("/think on", "think", "on"),
    ],
)
def test_commands(text: str, name: str, argument: str) -> None:
    invocation = parse(text)
    assert invocation is not None
    assert (invocation.command.name, invocation.argument) == (name, argument)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/",
        "//",
        "// comment",
        "//new",
        " /new",
        "/etc/hosts",
        "/* code */",
        "/1",
        "hello /new",
        "/new.",
        "a\n/new",
    ],
)
def test_texts(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/modle x", "There is no command /modle: is it /model?"),
        ("/bra", "is it /branch?"),
        ("/xyzzy", "/help shows all"),
        ("/title", "/title needs something after it: /title TEXT"),
        ("/new chat", "/new takes nothing after it"),
    ],
)
def test_what_cannot_be_carried_out(text: str, words: str) -> None:
    with pytest.raises(ComposeError) as caught:
        parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("//new", "/new"),
        ("//new idea", "/new idea"),
        (" /new", "/new"),
        ("// a comment", "// a comment"),
        ("//todo\nx = 1", "//todo\nx = 1"),
        ("///new", "///new"),
        ("  indented\n/code", "  indented\n/code"),
        ("/etc/hosts", "/etc/hosts"),
    ],
)
def test_sending_a_slash(prompt: str, text: str) -> None:
    assert as_text(prompt) == text


def test_every_command_is_carried_out_by_a_method() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    for command in COMMANDS:
        assert callable(getattr(ChatCommands, command.handler)), command.name


def choices(before: str, folder: Path, *, is_first_line: bool = True) -> list[str] | None:
    offered = completions(before, is_first_line, KNOWN, folder)
    if offered is None:
        return None
    assert before[offered.start :] == offered.typed
    return [before[: offered.start] + choice.text for choice in offered.choices]


def test_completing_commands(tmp_path: Path) -> None:
    assert choices("/", tmp_path) == [f"/{command.name}{' ' * bool(command.arguments)}" for command in COMMANDS]
    assert choices("/se", tmp_path) == ["/search ", "/set "]
    assert choices("/NE", tmp_path) == ["/new"]
    assert choices("/x", tmp_path) is None
    assert choices("/se", tmp_path, is_first_line=False) is None
    assert choices("say /se", tmp_path) is None


def test_completing_arguments(tmp_path: Path) -> None:
    assert choices("/model q", tmp_path) == ["/model Qwen3-4B-Q4_K_M"]
    assert choices("/model ", tmp_path) == ["/model Qwen3-4B-Q4_K_M", "/model SmolLM2-135M-Instruct.Q4_1"]
    assert choices("/think o", tmp_path) == ["/think on", "/think off"]
    assert choices("/set top", tmp_path) == ["/set top_k ", "/set top_p "]
    assert choices("/set engine ", tmp_path) == ["/set engine paged", "/set engine contiguous", "/set engine default"]
    assert choices("/set model s", tmp_path) == ["/set model SmolLM2-135M-Instruct.Q4_1"]
    assert choices("/search Hol", tmp_path) == ["/search Holiday plans"]
    assert choices("/new x", tmp_path) is None
    assert choices("/foo x", tmp_path) is None
    offered = completions("/set top_k", True, KNOWN, tmp_path)
    assert offered is not None
    assert offered.is_complete
    assert offered.choices[0].hint == "7"


def test_completing_files(tmp_path: Path) -> None:
    (tmp_path / "my notes.txt").write_text("")
    (tmp_path / "my dir").mkdir()
    (tmp_path / "my dir" / "in.txt").write_text("")
    (tmp_path / "main.py").write_text("")
    assert choices("see @ma", tmp_path) == ["see @main.py "]
    assert choices("see @", tmp_path, is_first_line=False) == [
        'see @"my dir/',
        "see @main.py ",
        'see @"my notes.txt" ',
    ]
    assert choices('see @"my d', tmp_path) == ['see @"my dir/']
    assert choices('see @"my dir/', tmp_path) == ['see @"my dir/in.txt" ']
    assert choices("mail a@ma", tmp_path) is None
    assert choices("see @zzz", tmp_path) is None
    assert choices('see @"main.py" ', tmp_path) is None
