"""Screenshots of the chat app and of the comparison with the starter model: SVG, and PNG where rsvg-convert is there.

Usage: python scripts/screenshots.py [FOLDER]

Without FOLDER they go to scripts/screenshots. The replies are the model's own, greedily.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

_SIZE = (104, 30)
_BROAD = (136, 30)
"""Columns and lines: of these the KV pool has some of its own."""
_COMPARED = (112, 36)
_COMPARED_STEP = "four answers"
"""Of the session, pictured while the paged engine is at it."""
_PNG_WIDTH = 820
_PATIENCE_S = 120
_OTHER_HOSTS = re.compile(r"@font-face\s*\{[^}]*\}\s*|<!--.*?-->\s*", re.DOTALL)
"""Where Textual names some: rules by which a browser loads its font, and a remark about itself."""
_FOR_RSVG = (("<svg ", '<svg xml:space="preserve" '), ("font-size: 20px", "font-size: 20.27px"))
"""It drops blanks at the beginning of a text, and leaves texts as wide as DejaVu Sans Mono, its usual font, is."""

_SYSTEM = "You are a friendly teacher. Keep it short."
_OTHERS = ("Give me a recipe for banana bread.", "How do I undo the last git commit?")
_QUESTIONS = (
    "Write a Python function that tells whether a number is even.",
    "Write another one that tells whether it is odd.",
)
_MANY = 400
"""Characters of a reply that is pictured while it is written."""
_LONG_QUESTION = "What are lists, tuples and dictionaries?"
_WORD = "tuple"


async def compare(folder: Path) -> None:
    """Play the session once, and take a picture towards its end."""
    from app.compare.scenarios import Part  # noqa: PLC0415
    from app.compare.screen.app import CompareApp  # noqa: PLC0415
    from app.compare.setup import Wish, prepare  # noqa: PLC0415
    from engine.config import EngineConfig  # noqa: PLC0415
    from models.locate import locate  # noqa: PLC0415

    path = locate(None)
    wish = Wish(path, EngineConfig(), ("contiguous", "paged"), (), repeat=1, only=Part.SESSION)
    app = CompareApp(partial(prepare, wish), path.name)
    deadline = time.monotonic() + _PATIENCE_S
    async with app.run_test(size=_COMPARED) as pilot:
        while not ((turn := app._main._turn) and (turn.test, turn.lane) == (_COMPARED_STEP, "paged")):
            if app._is_over or time.monotonic() > deadline:
                raise TimeoutError("the comparison did not come so far")
            await pilot.pause(0.1)
        await pilot.pause(0.4)
        save_picture(app.export_screenshot(title="octavo compare"), folder / "compare")
        await pilot.press("q")


async def take(folder: Path) -> None:
    """Chat with the model, and take a picture of each of the main screens."""
    from textual.pilot import Pilot  # noqa: PLC0415 - after the folders are set

    from app.chat.app import ChatApp  # noqa: PLC0415
    from app.chat.preferences.settings import AppSettings, ChatSettings  # noqa: PLC0415
    from app.chat.storage.store import ChatStore  # noqa: PLC0415

    settings = AppSettings(chat=ChatSettings(temperature=0, max_tokens=400, context=4096, system=_SYSTEM))
    with ChatStore() as store:
        app = ChatApp(store, settings)

        async def until(pilot: Pilot[None], is_so: Callable[[], object]) -> None:
            deadline = time.monotonic() + _PATIENCE_S
            while not is_so():
                if time.monotonic() > deadline:
                    raise TimeoutError("the app did not come so far")
                await pilot.pause(0.05)
            await pilot.pause(0.6)  # the status below is looked up twice a second

        def is_idle() -> bool:
            return not app.session.host.is_busy

        async def ask(pilot: Pilot[None], text: str) -> None:
            await pilot.press(*text, "enter")
            await until(pilot, lambda: app.session.host.is_busy)
            await until(pilot, is_idle)

        def n_written() -> int:
            reply = app._chat_screen.chat.reply
            return len(reply.text) if reply else 0

        def save(name: str) -> None:
            save_picture(app.export_screenshot(title="Octavo"), folder / name)

        async with app.run_test(size=_SIZE) as pilot:
            for text in _OTHERS:
                await ask(pilot, text)
                await pilot.press("ctrl+n")
            for text in _QUESTIONS:
                await ask(pilot, text)
            save("chat")
            await ask(pilot, _LONG_QUESTION)
            await pilot.press("f2", *"/regen", "enter")
            await pilot.resize_terminal(*_BROAD)
            await until(pilot, lambda: n_written() > _MANY)
            save("pool")
            await pilot.press("escape", "f2")
            await pilot.resize_terminal(*_SIZE)
            await pilot.press("ctrl+f", *_WORD)
            await until(pilot, is_idle)
            save("search")


def save_picture(svg: str, path: Path) -> None:
    """Write an SVG that names no other host, and its PNG."""
    svg = _OTHER_HOSTS.sub("", svg)
    path.with_suffix(".svg").write_text(svg, encoding="utf-8")
    if converter := shutil.which("rsvg-convert"):
        for usual, better in _FOR_RSVG:
            svg = svg.replace(usual, better)
        command = [converter, "--width", str(_PNG_WIDTH), "--output", str(path.with_suffix(".png"))]
        subprocess.run(command, input=svg.encode(), check=True)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as own:
        for name in ("DATA", "CONFIG", "CACHE"):
            os.environ[f"OCTAVO_{name}_DIR"] = f"{own}/{name.lower()}"
        asyncio.run(take(folder))
        asyncio.run(compare(folder))
    for path in sorted(folder.iterdir()):
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
