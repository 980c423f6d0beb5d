"""What the main screens look like, in two sizes: compared with pictures that somebody has looked at.

After a change that is meant to be seen: pytest tests/app/chat/test_snapshots.py --snapshot-update, and look at them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
import pytest_textual_snapshot
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

import app.chat.choosing.first_run
import app.chat.screens.search
import app.chat.widgets.sidebar
from app.chat.app import ChatApp
from app.chat.beginning import FRESH, Beginning
from app.chat.conversation import ReplyFigures
from app.chat.preferences.settings import AppSettings, ChatSettings
from app.chat.storage.store import ChatStore
from engine.messages import Role
from engine.scheduler_stats import SchedulerStats
from engine.survey import SEVERAL, BlockState, PoolSurvey, SurveyedSequence
from tests.app.chat.driven import Driven
from tests.app.chat.scripted_engine import KV, ScriptedEngine

pytest_textual_snapshot.SVGImageExtension.file_extension = "svg"  # the plugin sets it under the name of old versions
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
NOON = "2025-03-05T12:00:00.000+00:00"
DAYS = ("2025-03-05", "2025-03-05", "2025-03-05", "2025-03-04", "2025-03-02", "2025-01-20", "2024-11-02")
TITLES = (
    *("Printing in folds", "Hearts of an octopus", "A recipe for bread", "Sorting in Python", "Names for a cat"),
    *("Trip to Lisbon", "What is a monad?"),
)
ANSWER = """An **octavo** is a sheet folded three times into *eight leaves*, which makes sixteen pages.

| format | folds | pages |
|---|---:|---:|
| folio | 1 | 4 |
| quarto | 2 | 8 |
| octavo | 3 | 16 |

```python
def pages(folds: int) -> int:
    return 2 ** (folds + 1)
```
"""

Show = Callable[..., bool]


@pytest.fixture(autouse=True)
def standstill(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One day, one zone of time, one amount of memory."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for module in (app.chat.screens.search, app.chat.widgets.sidebar):
        monkeypatch.setattr(module, "today", lambda: date(2025, 3, 5))
    monkeypatch.setattr(app.chat.choosing.first_run, "available_memory", lambda: 2 * 2**30)
    yield
    monkeypatch.undo()
    time.tzset()


def library(store: ChatStore) -> None:
    """Some chats of several days; the first of them has a question and its answer."""
    for title in TITLES:
        chat = store.create_chat(ChatSettings(), title, named=True)
        question = store.add_message(chat.id, None, Role.USER, f"Tell me about {title.lower()}: what is an octavo?")
        answer = store.add_message(chat.id, question.id, Role.ASSISTANT, ANSWER)
        store.update_message(
            answer.id, figures=ReplyFigures("SmolLM2-135M-Instruct.Q4_1", 102, 32, 10, 0.16, 73.1, None)
        )
    store.pin(2, True)
    with store._database.writing() as connection:
        for number, day in enumerate(DAYS, start=1):
            connection.execute("UPDATE chats SET updated = ? WHERE id = ?", (f"{day}T12:00:00.000+00:00", number))
        connection.execute("UPDATE messages SET created = ?", (NOON,))


def survey() -> PoolSurvey:
    """Blocks of several chats, in stretches."""
    kinds = (
        *((BlockState.USED, SEVERAL, 12), (BlockState.USED, 1, 30), (BlockState.FREE, 0, 10), (BlockState.USED, 2, 20)),
        *((BlockState.CACHED, 1, 40), (BlockState.CACHED, 3, 60), (BlockState.FREE, 0, 212)),
    )
    states = b"".join(bytes([state] * n) for state, _, n in kinds)
    owners = tuple(owner for _, owner, n in kinds for _ in range(n))
    stats = SchedulerStats(2, 0, 384, 62, 100, 3000, 1000, 0, 3, 1, 120, 90)
    return PoolSurvey(KV, stats, states, owners, (SurveyedSequence(1, 480, 30, 1), SurveyedSequence(2, 315, 20, 2)))


@pytest.fixture
def looks(snap_compare: Show) -> Iterator[Show]:
    """Compare the app, after a flow through it, with its picture."""
    store = ChatStore()

    def compare(
        size: tuple[int, int],
        flow: Callable[[Driven], Awaitable[None]],
        beginning: Beginning = FRESH,
        fill: Callable[[ChatStore], None] = library,
    ) -> bool:
        fill(store)
        engine = ScriptedEngine(answer=lambda _: "An answer.")
        engine.survey = lambda: _done(survey())  # type: ignore[method-assign]
        chat_app = ChatApp(store, AppSettings(), engine.open, beginning)

        async def before(pilot: Pilot[None]) -> None:
            driven = Driven(chat_app, pilot, engine)
            await driven.until(lambda: chat_app._chat_screen.is_mounted)
            await flow(driven)
            for cursor in (*chat_app.screen.query(TextArea), *chat_app.screen.query(Input)):
                cursor.cursor_blink = False
            await pilot.pause()

        return snap_compare(chat_app, terminal_size=size, run_before=before)

    yield compare
    store.close()


def _done(value: PoolSurvey):  # type: ignore[no-untyped-def]
    from concurrent.futures import Future

    future: Future[PoolSurvey] = Future()
    future.set_result(value)
    return future


async def ready(driven: Driven) -> None:
    """The model is loaded, its memory is known, and the chat is drawn."""
    await driven.until(lambda: driven.shows("KV 20.0 KiB"))
    await driven.until(lambda: driven.shows("return 2"))


@SIZES
def test_chat(size: tuple[int, int], looks: Show) -> None:
    assert looks(size, ready, Beginning(chat_id=1))


@SIZES
def test_sidebar(size: tuple[int, int], looks: Show) -> None:
    async def flow(driven: Driven) -> None:
        await ready(driven)
        driven.screen.attention.replying.add(3)
        driven.screen.attention.unread.add(4)
        driven.screen._show_attention()
        await driven.pilot.press("ctrl+b", "down", "down")

    assert looks(size, flow, Beginning(chat_id=1))


@SIZES
def test_pool(size: tuple[int, int], looks: Show) -> None:
    async def flow(driven: Driven) -> None:
        await ready(driven)
        await driven.pilot.press("f2")
        await driven.until(lambda: driven.shows("384 blocks"))

    assert looks(size, flow, Beginning(chat_id=1))


@SIZES
def test_search(size: tuple[int, int], looks: Show) -> None:
    async def flow(driven: Driven) -> None:
        await ready(driven)
        await driven.pilot.press("ctrl+f", *"octavo", "down")

    assert looks(size, flow, Beginning(chat_id=1))


@SIZES
def test_welcome(size: tuple[int, int], looks: Show, starter_path: Path) -> None:
    async def flow(driven: Driven) -> None:
        await driven.until(lambda: driven.shows("Starter model"))

    assert looks(size, flow, Beginning(welcome=True), lambda _: None)
