"""What can complete the word before the cursor: a command, its argument, or the path of a file to attach."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from app.chat.writing.paths import complete_path
from app.chat.writing.slash import BY_NAME, COMMANDS, Known

_MOST = 100
_NAME = re.compile(r"/([A-Za-z-]*)")
_ARGUMENT = re.compile(r"/([A-Za-z-]+)\s+(.*)")
_MENTION = re.compile(r'(?<!\S)@(?:"([^"]*)|([^\s"]*))$')


class Completion(NamedTuple):
    """A choice. text: what takes the place of what was typed. goes_on: the user types, or chooses, more after it."""

    label: str
    text: str
    hint: str = ""
    goes_on: bool = False


class Completions(NamedTuple):
    """Choices for what was typed, from the column `start` to the cursor."""

    start: int
    typed: str
    choices: list[Completion]

    @property
    def is_complete(self) -> bool:
        """Whether what was typed is one of the choices already."""
        return any(choice.text.rstrip() == self.typed.rstrip() for choice in self.choices)


def completions(before: str, is_first_line: bool, known: Known, folder: Path) -> Completions | None:
    """Choices for the end of a line, or None. before: the line up to the cursor. folder: of relative paths."""
    if is_first_line and before.startswith("/"):
        return _of_command(before, known)
    match = _MENTION.search(before)
    if match is None:
        return None
    quoted, word = match.groups()
    choices = [
        Completion(
            choice.name + "/" * choice.is_folder, _mention(choice.path, choice.is_folder), goes_on=choice.is_folder
        )
        for choice in complete_path(quoted or word or "", folder)[:_MOST]
    ]
    return Completions(match.start(), match[0], choices) if choices else None


def _of_command(before: str, known: Known) -> Completions | None:
    if match := _NAME.fullmatch(before):
        typed = match[1].lower()
        choices = [
            Completion(
                command.usage,
                f"/{command.name}{' ' if command.arguments else ''}",
                command.help,
                bool(command.arguments),
            )
            for command in COMMANDS
            if command.name.startswith(typed)
        ]
        return Completions(0, before, choices) if choices else None
    match = _ARGUMENT.fullmatch(before)
    if match is None or match[1].lower() not in BY_NAME:
        return None
    choices = list(_arguments(match[1].lower(), match[2], known))[:_MOST]
    return Completions(match.start(2), match[2], choices) if choices else None


def _arguments(name: str, typed: str, known: Known) -> Iterator[Completion]:
    """Options of a command that begin with what was typed; those of several words when their first ones are there."""
    for option in BY_NAME[name].options(known):
        starts = option.text.lower().startswith(typed.lower())
        if starts and _first_words(option.text, name) <= typed.count(" "):
            yield Completion(option.text, option.text + " " * option.goes_on, option.hint, option.goes_on)


def _first_words(text: str, name: str) -> int:
    """Words of a choice that are to be there before it is shown: `set engine` before its values."""
    return text.count(" ") if name == "set" else 0


def _mention(path: str, is_folder: bool) -> str:
    if " " not in path:
        return f"@{path}" if is_folder else f"@{path} "
    return f'@"{path}' if is_folder else f'@"{path}" '
