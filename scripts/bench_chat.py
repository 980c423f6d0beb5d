"""How quick the chat app is while a long reply is written.

Usage: python scripts/bench_chat.py [--kilobytes 300] [--tokens-per-second 100] [--keys 200] [--width 100] [--height 30]
       [--text mixed|code|line]

Runs the app without a terminal, and an engine that only pretends to compute. Prints milliseconds, median, 95th
percentile and worst, from a key press until the letter is drawn: in a chat with a long reply, while the reply goes on,
while the user reads further up, and while the user leafs through it; and how long it takes to open that chat, to leave
it and to come back. The reply is Markdown of all kinds with a very long code block, or one code block without a blank
line, or a single line.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
from textual import events

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app.chat.app import ChatApp
from app.chat.conversation import MessageState
from app.chat.preferences.settings import AppSettings, ChatSettings
from app.chat.session import OpenChat
from app.chat.storage.store import ChatStore
from app.chat.widgets.composer import Composer
from app.chat.widgets.message_view import MessageView
from app.chat.widgets.transcript import Transcript
from engine.messages import Role
from tests.app.chat.scripted_engine import ScriptedEngine, ScriptedRequest

PARAGRAPH = "A paragraph with **bold** words and `code`, a [link](https://example.com) and text to be wrapped. " * 2
CODE = "def double(x: int) -> int:\n    return 2 * x  # twice as much\n\n" * 6
LINE_OF_CODE = "    total += double(x)  # and so on, line by line\n"
WORDS = "words of a text that has no end and no line but the first, "
PART = f"""## A heading

{PARAGRAPH}

- the first item
- the second item, *with emphasis*
- the third item

```python
{CODE}```

| name | value |
|------|-------|
| one  | 1     |
| two  | 2     |

{PARAGRAPH}

"""


LONG_CODE = 100_000
"""Characters of the code block in a mixed text."""


def long_text(kind: str, size: int) -> str:
    """What is stored of the reply; what is streamed goes on in the same way."""
    match kind:
        case "code":
            return "```python\n" + _repeated(LINE_OF_CODE, size)
        case "line":
            return _repeated(WORDS, size)
        case _:
            fence = f"```python\n{_repeated(LINE_OF_CODE, min(LONG_CODE, size // 3))}```\n\n"
            half = _repeated(PART, (size - len(fence)) // 2)
            return half + fence + half


def _repeated(part: str, size: int) -> str:
    return part * (size // len(part) + 1)


class Bench:
    """The app with one chat."""

    def __init__(self, app: ChatApp) -> None:
        self.app = app

    async def settle(self) -> None:
        """Wait until there is nothing to be built near the window."""
        transcript = self.app.screen.query_one(Transcript)
        for _ in range(3):
            await self.drawn()
            await self.until(lambda: not transcript._is_filling)

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.0005)

    async def drawn(self) -> None:
        is_drawn = asyncio.Event()
        self.app.screen.call_after_refresh(is_drawn.set)
        await is_drawn.wait()

    async def keys(self, name: str, n: int, between: Callable[[], Awaitable[object]] | None = None) -> None:
        """Type letters, and print how long each took to appear."""
        composer = self.app.screen.query_one(Composer)
        composer.focus()
        times = []
        for number in range(n):
            if between is not None and number % 4 == 0:
                await between()
            length = len(composer.text)
            start = time.perf_counter()
            self.app.post_message(events.Key("x", "x"))
            await self.until(lambda length=length: len(composer.text) > length)
            await self.drawn()
            times.append(1000 * (time.perf_counter() - start))
            await asyncio.sleep(0.02)
        composer.text = ""
        self.report(name, times)

    def report(self, name: str, times: list[float]) -> None:
        percentile = statistics.quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else times[0]
        print(f"{name:58} {statistics.median(times):8.1f} {percentile:8.1f} {max(times):8.1f}", flush=True)

    async def open(self, chat: OpenChat) -> float:
        """Show a chat, and return how long that took, until its end can be read."""
        start = time.perf_counter()
        await self.app._chat_screen.show_chat(chat)
        transcript = self.app.screen.query_one(Transcript)
        await self.until(lambda: all(view.is_built for view in list(transcript.query(MessageView))[-1:]))
        await self.drawn()
        return 1000 * (time.perf_counter() - start)


def stream(request: ScriptedRequest, part: str, rate: float, is_over: threading.Event) -> None:
    """Say a token at a time, on a thread of its own as an engine does."""
    text = itertools.cycle(part[start : start + 4] for start in range(0, len(part), 4))
    due = time.perf_counter()
    while not is_over.is_set():
        request.say(next(text))
        due += 1 / rate
        time.sleep(max(0.0, due - time.perf_counter()))


async def measure(kind: str, size: int, rate: float, n_keys: int, window: tuple[int, int]) -> None:
    engine = ScriptedEngine()
    with tempfile.TemporaryDirectory() as folder, ChatStore(Path(folder) / "chats.db") as store:
        chat_id = store.create_chat(ChatSettings(), "Long", named=True).id
        question = store.add_message(chat_id, None, Role.USER, "Tell me everything.")
        store.add_message(chat_id, question.id, Role.ASSISTANT, long_text(kind, size), MessageState.STOPPED)
        app = ChatApp(store, AppSettings(), open_engine=engine.open)
        async with app.run_test(size=window) as pilot:
            await pilot.pause()
            bench, screen = Bench(app), app._chat_screen
            chat = app.session.open_chat(chat_id)
            bench.report("to open the chat, until its end can be read", [await bench.open(chat)])
            transcript = screen.query_one(Transcript)
            await bench.settle()
            await bench.keys("key, nothing goes on", n_keys)
            app.session.resume(screen.chat, screen.chat.conversation.leaf)
            await bench.until(lambda: bool(engine.requests))
            is_over = threading.Event()
            part = {"code": LINE_OF_CODE, "line": WORDS}.get(kind, PART)
            thread = threading.Thread(target=stream, args=(engine.requests[-1], part, rate, is_over))
            thread.start()
            try:
                await bench.keys(f"key, a reply at {rate:.0f} tokens/s", n_keys)
                transcript.jump(transcript.max_scroll_y // 2)
                await bench.settle()
                await bench.keys("key, the same, and the user reads further up", n_keys)

                async def leaf() -> None:
                    transcript.action_page_up()

                await bench.keys("key, the same, and the user leafs through it", n_keys, leaf)
                away, back = [], []
                for _ in range(10):
                    away.append(await bench.open(app.session.new_chat()))
                    back.append(await bench.open(app.session.open_chat(chat_id)))
                    await bench.settle()
                bench.report("to go to an empty chat", away)
                bench.report("to come back", back)
            finally:
                is_over.set()
                thread.join()
            print(f"widgets at the end: {len(list(screen.query('*')))}")


@click.command(help=__doc__)
@click.option("--kilobytes", default=300)
@click.option("--tokens-per-second", default=100.0)
@click.option("--text", type=click.Choice(["mixed", "code", "line"]), default="mixed")
@click.option("--keys", default=200)
@click.option("--width", default=100)
@click.option("--height", default=30)
def main(kilobytes: int, tokens_per_second: float, text: str, keys: int, width: int, height: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("OCTAVO_DATA_DIR", "OCTAVO_CONFIG_DIR", "OCTAVO_CACHE_DIR"):
            os.environ[name] = folder
        asyncio.run(measure(text, 1000 * kilobytes, tokens_per_second, keys, (width, height)))


if __name__ == "__main__":
    main()
