"""A chat with the starter model in which a reply goes on until it is stopped."""

from __future__ import annotations

import re
from pathlib import Path

from app.chat.conversation import Message
from app.chat.storage.store import ChatStore
from tests.app.chat.terminal import Terminal

QUESTION = "Write a long essay about ships with many short paragraphs."
"""Greedily, the starter model answers with paragraphs until its window is full."""

_SETTINGS = '[chat]\ntemperature = 0\ncontext = 8192\nthreads = 1\ndevice = "CPU"\n'
_WRITE = "Write a message"
_NOT_YET = ("Waiting", "Reading")
_N_LOOKS = 8


def settings_for_essays(folder: Path) -> None:
    """Write the settings that this takes into a config folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "octavo.toml").write_text(_SETTINGS)


def begin_essay(terminal: Terminal, model: Path) -> None:
    """Start the app, and let it write."""
    terminal.octavo("chat", str(model))
    terminal.wait_for(_WRITE)
    terminal.say(QUESTION)
    wait_for_growth(terminal)


def wait_for_growth(terminal: Terminal) -> None:
    """Until what is above the composer has changed more often than it does before a reply has a word."""
    seen: set[str] = set()

    def has_grown() -> bool:
        above = terminal.text().rpartition("╭")[0]
        if not any(word in above for word in _NOT_YET):
            seen.add(above)
        return len(seen) > _N_LOOKS

    terminal.wait_until(has_grown, "more of the reply")


def shows_end_of(terminal: Terminal, message: Message) -> bool:
    """Whether the last words of a message are on the screen, which no sidebar shares with it."""
    return " ".join(_words(message.text)[-12:]) in " ".join(_words(terminal.text()))


def stored_path(chat_id: int = 1) -> list[Message]:
    """The messages of a chat that are shown, as they are on the disk."""
    with ChatStore() as store:
        return store.load(chat_id).path()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)
