"""The commands that begin with a slash: one registry for composer, completion, help and command palette."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from app.chat.errors import ComposeError
from app.chat.preferences.settings import ChatSettings
from engine.config import EngineKind, KvType

DEFAULT = "default"
"""What `/set NAME` takes instead of a value, to go back to the usual one."""

_FORM = re.compile(r"(/+)([A-Za-z][A-Za-z-]*)(?:\s+(.*))?", re.DOTALL)


class Option(NamedTuple):
    """An argument that can be chosen. hint: what it is. goes_on: another argument follows."""

    text: str
    hint: str = ""
    goes_on: bool = False


@dataclass(frozen=True)
class Known:
    """What arguments can name, looked up at the moment when they are completed."""

    models: Callable[[], Sequence[str]]
    titles: Callable[[], Sequence[str]]
    settings: Callable[[], ChatSettings]


@dataclass(frozen=True)
class SlashCommand:
    """A command. arguments: as the help shows them, in brackets what can be left out.

    handler: method of ChatCommands (app/chat/screens/chat_commands.py) that carries it out, which gets the argument.
    options: arguments to choose from.
    """

    name: str
    arguments: str
    help: str
    handler: str
    options: Callable[[Known], Sequence[Option]] = lambda _: ()

    @property
    def usage(self) -> str:
        """Such as "/save [FILE]"."""
        return f"/{self.name} {self.arguments}".rstrip()

    @property
    def needs_argument(self) -> bool:
        """Whether it means nothing without one."""
        return bool(self.arguments) and not self.arguments.startswith("[")


class Invocation(NamedTuple):
    """A command as the user wrote it. argument: all that follows its name, or nothing."""

    command: SlashCommand
    argument: str


def _words(*words: str) -> Callable[[Known], Sequence[Option]]:
    return lambda _: tuple(Option(word) for word in words)


def _settings(known: Known) -> Sequence[Option]:
    """Names with their values, then, by `set NAME`, the values of those that have few."""
    values = known.settings()
    names = [field.name for field in fields(ChatSettings)]
    shown = {name: getattr(values, name) for name in names}
    return (
        *(Option(name, "default" if value is None else str(value), goes_on=True) for name, value in shown.items()),
        *(Option(f"{name} {value}") for name, choices in _VALUES.items() for value in (*choices, DEFAULT)),
        *(Option(f"model {model}") for model in known.models()),
    )


_VALUES: dict[str, tuple[str, ...]] = {
    "engine": tuple(EngineKind),
    "kv_type": tuple(KvType),
    "thinking": ("true", "false"),
}

COMMANDS = (
    SlashCommand(
        "model",
        "[NAME]",
        "Choose the model of this chat",
        "choose_model",
        lambda known: [Option(name) for name in known.models()],
    ),
    SlashCommand("system", "[TEXT]", "Set the system prompt of this chat; alone: edit it", "set_system"),
    SlashCommand("new", "", "Begin a new chat", "new_chat"),
    SlashCommand(
        "search",
        "[WORDS]",
        "Search all chats",
        "search",
        lambda known: [Option(title) for title in known.titles()],
    ),
    SlashCommand("regen", "", "Write the last reply again, beside the one that is there", "regenerate"),
    SlashCommand("edit", "", "Edit your last message; the old one stays as a branch", "edit"),
    SlashCommand(
        "branch",
        "[next|prev]",
        "Go to the neighbouring branch; alone: choose one from a list",
        "branch",
        _words("next", "prev"),
    ),
    SlashCommand("continue", "", "Go on with a reply that was stopped or cut", "resume"),
    SlashCommand("copy", "[code]", "Copy the last reply, or its last code block", "copy", _words("code")),
    SlashCommand("save", "[FILE]", "Write this chat to a file: FILE.md to read, FILE.json with all branches", "save"),
    SlashCommand("set", "[NAME VALUE]", "Change a setting of this chat; alone: show all", "set", _settings),
    SlashCommand(
        "think",
        "on|off|auto",
        "Let a reasoning model think before it answers, or not",
        "think",
        _words("on", "off", "auto"),
    ),
    SlashCommand("stats", "", "Show the blocks of the KV cache", "stats"),
    SlashCommand("title", "TEXT", "Give this chat a title", "rename"),
    SlashCommand("delete", "", "Delete this chat; it can be undone", "delete"),
    SlashCommand("keys", "", "Show the keys", "help"),
    SlashCommand("help", "", "Show keys and commands", "help"),
    SlashCommand("quit", "", "Leave Octavo", "quit"),
)

BY_NAME = {command.name: command for command in COMMANDS}


def parse(text: str) -> Invocation | None:
    """The command that a prompt is, or None if it is text, such as /etc/hosts. Raises ComposeError."""
    match = _FORM.fullmatch(text.rstrip())
    if match is None or match[1] != "/":
        return None
    name = match[2].lower()
    command = BY_NAME.get(name)
    if command is None:
        likely = [known for known in BY_NAME if known.startswith(name)] or difflib.get_close_matches(name, BY_NAME)
        question = f"is it /{likely[0]}?" if likely else "/help shows all."
        raise ComposeError(f"There is no command /{name}: {question} A space before it sends it as text.")
    argument = (match[3] or "").strip()
    if command.needs_argument and not argument:
        raise ComposeError(f"/{name} needs something after it: {command.usage}.")
    if argument and not command.arguments:
        raise ComposeError(f"/{name} takes nothing after it: a space before it sends it as text.")
    return Invocation(command, argument)


def as_text(prompt: str) -> str:
    """A prompt that is no command, without the space or the second slash that made it none."""
    if prompt.startswith(" ") and prompt.lstrip().startswith("/"):
        return prompt.lstrip()
    match = _FORM.fullmatch(prompt.rstrip())
    is_escaped = match is not None and match[1] == "//" and "\n" not in prompt
    return prompt[1:] if is_escaped else prompt
