"""How long the stored chats keep the chat app's screens waiting.

Usage: python scripts/bench_chats.py [--folder FOLDER] [--chats 2000] [--messages 20] [--repeat 20]

Fills a store in FOLDER (a temporary one by default; the disk matters, as every change is synced to it) and prints the
median and the longest time of each method, in milliseconds.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from app.chat.conversation import MessageState
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.rows import now, settings_json
from app.chat.storage.store import ChatStore
from engine.messages import Role

LONG = 300_000
"""Characters of a very long reply."""


def fill(store: ChatStore, n_chats: int, n_messages: int, words: list[str]) -> None:
    """In one transaction, as 40,000 synced ones would take a while."""
    draw = random.Random(0)
    settings = settings_json(ChatSettings(model="Qwen3-4B-Q4_K_M", system="You are a helpful assistant."))
    with store._database.writing() as connection:
        for chat in range(1, n_chats + 1):
            connection.execute(
                "INSERT INTO chats (title, named, created, updated, settings) VALUES (?, 1, ?, ?, ?)",
                (" ".join(draw.choices(words, k=5)), now(), now(), settings),
            )
            parent = None
            for number in range(n_messages):
                parent = connection.execute(
                    "INSERT INTO messages (chat_id, parent, role, state, created, text)"
                    " VALUES (?, ?, ?, 'complete', ?, ?)",
                    (chat, parent, list(Role)[1 + number % 2], now(), " ".join(draw.choices(words, k=120))),
                ).lastrowid
            connection.execute("UPDATE chats SET leaf = ? WHERE id = ?", (parent, chat))


def measure(name: str, repeat: int, work: Callable[[], object]) -> None:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(1000 * (time.perf_counter() - start))
    print(f"{name:44} {statistics.median(times):8.2f} {max(times):8.2f}")


@click.command(help=__doc__)
@click.option("--folder", type=click.Path(path_type=Path))
@click.option("--chats", default=2000)
@click.option("--messages", default=20)
@click.option("--repeat", default=20)
def main(folder: Path | None, chats: int, messages: int, repeat: int) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 10))) for _ in range(20_000)]
    common = words[:1] * 400 + words
    with tempfile.TemporaryDirectory(dir=folder) as place, ChatStore(Path(place) / "chats.db") as store:
        fill(store, chats, messages, common)
        size = (Path(place) / "chats.db").stat().st_size
        print(f"{chats:,} chats of {messages} messages, {size / 2**20:,.0f} MiB; milliseconds: median, longest")
        chat = store.chats()[chats // 2].id
        leaf = store.load(chat).leaf
        long = " ".join(draw.choices(words, k=LONG))[:LONG]
        chinese = "".join(chr(draw.randint(0x4E00, 0x9FFF)) for _ in range(LONG))
        measure("open and close", repeat, lambda: ChatStore(Path(place) / "chats.db").close())
        measure("chats", repeat, store.chats)
        measure("load", repeat, lambda: store.load(chat))
        measure("search, a rare word", repeat, lambda: store.search(words[7]))
        measure("search, a word in every second message", repeat, lambda: store.search(words[0]))
        measure("search, a beginning of one letter", repeat, lambda: store.search("a"))
        measure("search, three common beginnings", repeat, lambda: store.search("a b c"))
        measure("changed", repeat, store.changed)
        measure("add_message, short", repeat, lambda: store.add_message(chat, leaf, Role.USER, "Hello"))
        streaming = store.add_message(chat, leaf, Role.ASSISTANT, "", MessageState.STREAMING).id
        measure("update_message, 300 KB, streaming", repeat, lambda: store.update_message(streaming, text=long + "x"))
        for name, text in (("300 KB", long), ("300,000 Chinese characters", chinese)):
            measure(f"add_message, {name}", repeat, partial(store.add_message, chat, leaf, Role.USER, text))

            def end(text: str = text) -> None:
                store.update_message(streaming, text=text, state=MessageState.STREAMING)
                store.update_message(streaming, state=MessageState.COMPLETE)

            measure(f"both updates that end a reply of {name}", repeat, end)
        measure("search, in 300 KB texts", repeat, lambda: store.search(long.split()[-2]))
        measure("load, with them", repeat, lambda: store.load(chat))
        deletions: list[int] = []
        measure(
            "delete_messages", repeat, lambda: deletions.append(store.delete_messages(chat, store.load(chat).leaf or 0))
        )
        measure("restore_messages", repeat, lambda: store.restore_messages(deletions.pop()))


if __name__ == "__main__":
    main()
