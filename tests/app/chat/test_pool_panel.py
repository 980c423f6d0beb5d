"""The KV pool and the status line in the running app."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from app.chat.widgets.pool_panel import PoolPanel
from app.chat.widgets.status_bar import StatusBar
from engine.survey import PoolSurvey
from tests.app.chat.driven import Driven, drive
from tests.app.chat.scripted_engine import KV


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)])
def test_the_panel_opens_and_closes(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        panel = driven.screen.query_one(PoolPanel)
        assert not panel.display
        await driven.pilot.press("f2")
        await driven.until(lambda: driven.shows("64 blocks of 16 tokens"))
        assert driven.shows("░     10 cached, of other chats")
        assert driven.shows("held in memory     20.0 KiB")
        assert driven.composer.has_focus, "the user can go on writing"
        await driven.pilot.press("f2")
        assert not panel.display

    drive(flow, size=size)


def test_the_panel_is_seen_from_the_chat_on_the_screen() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("Why?")
        await driven.pilot.press("f2")
        await driven.until(lambda: driven.shows("█      2 in use by this chat"))
        assert driven.shows("this chat")
        await driven.pilot.press("ctrl+n")
        await driven.until(lambda: driven.shows("▓      2 in use by other chats"))

    drive(flow, size=(160, 50))


def test_nothing_is_asked_while_nothing_runs() -> None:
    async def flow(driven: Driven) -> None:
        asked: list[int] = []

        def survey() -> Future[PoolSurvey]:
            asked.append(1)
            future: Future[PoolSurvey] = Future()
            future.set_result(PoolSurvey(KV._replace(bytes_resident=len(asked) * 2**20)))
            return future

        driven.engine.survey = survey  # type: ignore[method-assign]
        screen = driven.screen
        screen.chat.named = True
        await driven.until(lambda: screen.query_one(StatusBar).status.kv is not None)
        before = len(asked)
        for _ in range(20):
            screen._look()
        assert len(asked) == before
        await driven.send("Why?")
        await driven.until(lambda: screen.session.host.is_busy)
        await driven.until(lambda: len(asked) >= before + 2)
        for request in driven.engine.requests:
            request.finish()
        await driven.until(lambda: not screen.session.host.is_busy)
        running = len(asked)
        await driven.until(lambda: len(asked) == running + 1)
        shown = screen.query_one(StatusBar).status.kv
        assert shown is not None
        assert shown.bytes_resident == (running + 1) * 2**20, "once more when it has ended"

    drive(flow, answer=None)


def test_the_status_tells_how_full_the_window_is() -> None:
    async def flow(driven: Driven) -> None:
        assert driven.shows("window 2,048")
        await driven.send("Why?")
        await driven.until(lambda: driven.engine.requests)
        driven.engine.requests[0].read(100, 1024, 0)
        await driven.until(lambda: driven.shows("▰▰▰▰▰▱▱▱▱▱ 1,024 of 2,048"))
        driven.engine.requests[0].finish(reused=1000, computed=24)
        await driven.until(lambda: driven.shows("1,045 of 2,048"))
        await driven.pilot.press("ctrl+n")
        await driven.until(lambda: driven.shows("window 2,048"))

    drive(flow, size=(120, 40), answer=None)
