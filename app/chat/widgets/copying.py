"""Copying text from the chat, to wherever this terminal and this desktop take it."""

from __future__ import annotations

from typing import Any

from textual.app import App

from app.chat.clipboard import TERMINAL_LIMIT, copy_to_system, system_command
from app.chat.wording.message_texts import text_size


def copy_text(app: App[Any], text: str, what: str) -> None:
    """Copy a text, and say so. what: names it at the beginning of a sentence, "Code block 2 of 3"."""
    command = system_command()
    fits_terminal = len(text.encode("utf-8", "replace")) <= TERMINAL_LIMIT
    if fits_terminal:
        app.copy_to_clipboard(text)
    if command is not None:
        app.run_worker(lambda: copy_to_system(command, text), thread=True, exit_on_error=False)
    if fits_terminal or command is not None:
        app.notify(f"{what} copied: {text_size(text)}.", markup=False)
    else:
        app.notify(
            f"{what} is too long for a terminal's clipboard ({text_size(text)}): save the chat to a file instead.",
            severity="warning",
            markup=False,
        )
