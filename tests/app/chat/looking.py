"""What a test sees of the chat, and waiting until it is to be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from textual.app import App
from textual.widget import Widget

from app.chat.widgets.message_view import MessageView
from app.chat.widgets.transcript import Transcript
from tests.app.chat.driven import Driven

_LOOKS = 1_000


async def until(driven: Driven, is_so: Callable[[], object]) -> None:
    """Let the app work until something is so."""
    for _ in range(_LOOKS):
        if is_so():
            return
        await driven.pilot.pause(0.005)
    raise AssertionError(f"It never came to be; this is shown:\n{screen_text(driven.app)}")


async def until_shown(driven: Driven, text: str) -> None:
    """Let the app work until a text is on the screen."""
    await until(driven, lambda: text in screen_text(driven.app))


async def until_quiet(driven: Driven) -> None:
    """Let the app make the widgets that it wants near the window, and draw them."""
    view = transcript(driven)
    for _ in range(3):
        await driven.pilot.pause()
        await until(driven, lambda: not view._is_filling)
        is_drawn = asyncio.Event()
        driven.app.screen.call_after_refresh(is_drawn.set)
        await is_drawn.wait()


def screen_text(app: App[None]) -> str:
    """All lines of the terminal."""
    return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())


def lines_of(driven: Driven, widget: Widget) -> list[str]:
    """The lines of the terminal that a widget has."""
    region = widget.region.intersection(driven.app.screen.region)
    lines = driven.app.screen._compositor.render_strips()[region.y : region.bottom]
    return [line.crop(region.x, region.right).text.rstrip() for line in lines]


def transcript(driven: Driven) -> Transcript:
    """The messages."""
    return driven.screen.query_one(Transcript)


def views(driven: Driven) -> list[MessageView]:
    """The messages of the path, from its root."""
    return list(transcript(driven).query_children(MessageView))
