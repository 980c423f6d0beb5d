"""The chat app with a scripted engine, driven by a test as a user would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot

from app.chat.app import ChatApp
from app.chat.beginning import FRESH, Beginning
from app.chat.preferences.settings import AppSettings
from app.chat.screens.chat import ChatScreen
from app.chat.storage.store import ChatStore
from app.chat.widgets.composer import Composer
from engine.messages import ChatMessage, Loaded, TextRequest
from engine.sequence import Priority
from tests.app.chat.scripted_engine import ScriptedEngine, ScriptedRequest


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

    @property
    def replies(self) -> list[ScriptedRequest]:
        """What the engine was asked for, without titles."""
        return [one for one in self.engine.requests if one.request.priority is not Priority.BACKGROUND]

    async def type(self, text: str, *keys: str) -> None:
        """Write a text character by character, then press keys."""
        for character in text:
            self.composer.replace(character, *self.composer.selection, maintain_selection_offset=False)
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the engine has everything that it was asked for, and the screen what it answered at once."""
        await self.pilot.pause()
        engine = self.app.session.host._current
        if engine is not None:
            await asyncio.wrap_future(engine.errands.submit(lambda: None))
            await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Write a text and send it, whatever completion would say about it."""
        self.composer.focus()
        self.composer.load_text(text)
        await self.type("", "enter")

    async def until(self, condition: Callable[[], object], patience_s: float = 20) -> None:
        """Wait for something that comes from another thread, or from a timer."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            await self.pilot.pause(0.01)
        await self.pilot.pause()

    def lines(self) -> list[str]:
        """The screen as text, without spaces at the ends of its lines."""
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    def shows(self, text: str) -> bool:
        """Whether a text can be read on one line of the screen."""
        return any(text in line for line in self.lines())

    def sent(self) -> list[str]:
        """What the user has said in the last request for a reply."""
        prompt = self.replies[-1].request.prompt
        assert not isinstance(prompt, str)
        return [message.content for message in prompt if isinstance(message, ChatMessage) and message.role == "user"]


def drive(
    flow: Callable[[Driven], Awaitable[Any]],
    *,
    size: tuple[int, int] = (80, 24),
    settings: AppSettings | None = None,
    answer: Callable[[TextRequest], str] | None = lambda _: "An answer.",
    stored: Callable[[ChatStore], object] = lambda _: None,
    beginning: Beginning = FRESH,
    loads: Callable[[], Loaded] | None = None,
) -> None:
    """Run the app in a terminal of columns and lines, and let `flow` use it; `stored` fills the store before."""

    async def run() -> None:
        engine = ScriptedEngine(answer=answer, loads=loads)
        with ChatStore() as store:
            stored(store)
            app = ChatApp(store, settings or AppSettings(), engine.open, beginning)
            async with app.run_test(size=size) as pilot:
                await pilot.pause()
                await flow(Driven(app, pilot, engine))

    asyncio.run(run())
