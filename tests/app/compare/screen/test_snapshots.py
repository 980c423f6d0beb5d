"""What the screen looks like, in two sizes: compared with pictures that somebody has looked at.

After a change that is meant to be seen: pytest tests/app/compare/screen/test_snapshots.py --snapshot-update, and look
at them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
import pytest_textual_snapshot
from textual.pilot import Pilot

from app.compare.scenarios import SESSION, Plan, RawTest
from app.compare.screen.app import CompareApp
from tests.app.compare.fake_lane import FakeClock, lane
from tests.app.compare.screen.staged import PLAYED, SHORT, Actor, Staged, StagedComparison, two_lanes

pytest_textual_snapshot.SVGImageExtension.file_extension = "svg"  # the plugin sets it under the name of old versions
SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 36)], ids=["80x24", "120x36"])
ANSWER = """The last frost usually comes in the second week of April, so plant them from the middle of May on.

1. Six plants need some twenty litres a day in July.
2. Hoses are allowed before nine and after seven.
"""
TESTS = RawTest(512, 0, decodes=False), RawTest(64, 0, decodes=True), RawTest(64, 512, decodes=True)
PLAN = Plan(PLAYED.session, TESTS, (), repeat=2)

Show = Callable[..., bool]
Flow = Callable[[Staged, Actor], Awaitable[None]]


@pytest.fixture
def looks(snap_compare: Show) -> Iterator[Show]:
    """Compare the app, after a flow through it, with its picture."""
    apps: list[CompareApp] = []

    def compare(size: tuple[int, int], flow: Flow, hold_at: int | None, plan: Plan = PLAN) -> bool:
        clock = FakeClock()
        base, other = two_lanes(clock)
        base.text = other.text = ANSWER
        other.hold_at = hold_at
        staged = StagedComparison([lane("contiguous", base), lane("paged", other)], plan, clock)
        app = CompareApp(lambda _: staged, "model.gguf")
        apps.append(app)

        async def before(pilot: Pilot[None]) -> None:
            await flow(Staged(app, pilot, staged), other)
            await pilot.pause(0.2)

        return snap_compare(app, terminal_size=size, run_before=before)

    yield compare
    for app in apps:
        app.backstage.stop()
        app.backstage.wait(10)


@SIZES
def test_running(size: tuple[int, int], looks: Show) -> None:
    async def flow(staged: Staged, _: Actor) -> None:
        await staged.until(lambda: staged.shows("four answers, paged") and staged.pane_shows("paged", "2. Hoses"))

    assert looks(size, flow, 1 + [step.name for step in SESSION].index("four answers"))


@SIZES
def test_raw_speed(size: tuple[int, int], looks: Show) -> None:
    async def flow(staged: Staged, other: Actor) -> None:
        await staged.until_shown("tg64 @ d512, round 3 of 5, paged")

    assert looks(size, flow, 28, replace(PLAN, session=SHORT.session))


@SIZES
def test_finished(size: tuple[int, int], looks: Show) -> None:
    async def flow(staged: Staged, _: Actor) -> None:
        await staged.until_shown("Done", "In this session paged gave one user")

    assert looks(size, flow, None, replace(PLAN, session=SHORT.session))
