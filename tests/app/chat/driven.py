"""The chat app with a scripted engine, driven by a test as a user would."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot

from app.chat.app import ChatApp
from app.chat.screens.chat import ChatScreen
from app.chat.settings import AppSettings
from app.chat.store import ChatStore
from app.chat.widgets.composer import Composer
from engine.messages import ChatMessage, TextRequest
from engine.sequence import Priority
from tests.app.chat.scripted_engine import ScriptedEngine


@dataclass
class Driven:
    """A running app."""

    app: ChatApp
    pilot: Pilot[None]
    engine: ScriptedEngine

    @property
    def screen(self) -> ChatScreen:
        """The screen with the chat, also when something lies over it."""
        return self.app._chat_screen

    @property
    def composer(self) -> Composer:
        """Where the user writes."""
        return self.screen.query_one(Composer)

    @property
    def notices(self) -> list[str]:
        """What the user has been told."""
        return [notification.message for notification in self.app._notifications]

    async def type(self, text: str, *keys: str) -> None:
        """Write a text character by character, then press keys."""
        for character in text:
            self.composer.replace(character, *self.composer.selection, maintain_selection_offset=False)
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Write a text and send it, whatever completion would say about it."""
        self.composer.load_text(text)
        await self.type("", "enter")

    def sent(self) -> list[str]:
        """What the user has said in the last request for a reply."""
        requests = [one.request for one in self.engine.requests if one.request.priority is not Priority.BACKGROUND]
        prompt = requests[-1].prompt
        assert not isinstance(prompt, str)
        return [message.content for message in prompt if isinstance(message, ChatMessage) and message.role == "user"]


def drive(
    flow: Callable[[Driven], Awaitable[Any]],
    *,
    size: tuple[int, int] = (80, 24),
    settings: AppSettings | None = None,
    answer: Callable[[TextRequest], str] | None = lambda _: "An answer.",
) -> None:
    """Run the app in a terminal of columns and lines, and let `flow` use it."""

    async def run() -> None:
        engine = ScriptedEngine(answer=answer)
        with ChatStore() as store:
            app = ChatApp(store, settings or AppSettings(), open_engine=engine.open)
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await flow(Driven(app, pilot, engine))

    asyncio.run(run())
