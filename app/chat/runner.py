"""Runs the chat app in the terminal."""

from __future__ import annotations

from app.chat.app import ChatApp
from app.full_screen import run as run_full_screen


def run(app: ChatApp) -> int:
    """Run the app to its end and return the exit code. The caller closes the store of its session."""

    def let_go() -> None:
        app.session.close()
        app.session.store.close()

    return run_full_screen(app, let_go)
