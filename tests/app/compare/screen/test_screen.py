"""The screen in use: what is seen while it runs, and what each key does. The runner is the real one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.compare.report import as_json, as_plain
from app.compare.scenarios import SESSION, Plan, RawTest
from app.compare.screen.main_screen import FIGURES
from app.compare.screen.save_dialog import SaveDialog
from tests.app.compare.fake_lane import FakeClock, FakeVariant
from tests.app.compare.screen.staged import ONCE, RAW, SHORT, Actor, Staged, stage, two_lanes

TURN_3 = 3
"""A lane's requests are a warm-up, and then the steps of the session."""


def held(at: int) -> tuple[FakeClock, Actor, Actor]:
    """Two lanes, the second of which holds at a request."""
    clock = FakeClock()
    base, other = two_lanes(clock)
    other.hold_at = at
    return clock, base, other


def test_both_lanes_stream_their_answers_and_the_end_is_a_summary() -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.until(lambda: staged.pane_shows("B", "An answer of the second lane."))
        assert staged.pane_shows("A", "An answer of the first lane.")
        assert staged.pane_shows("B", "brown spots"), "the question"
        assert staged.pane("B").has_class("-active")
        assert not staged.pane("A").has_class("-active")
        for name in "AB":
            assert staged.pane_shows(name, "tokens/s for one user")
            assert staged.pane_shows(name, "turn 2")
        assert staged.pane_shows("A", "█ 20.0 MiB used ▒ 180.0 MiB reserved ░ 180.0 MiB in RAM")
        other.go.set()
        await staged.until_shown("Done", "In this session B gave one user")
        # every figure is one of results.py
        report = as_json(staged.record)
        assert staged.app._main.view == FIGURES
        ours, theirs = (figure["variants"][0]["tokens_per_s"]["median"] for figure in report["results"]["session"])
        row = next(line.split() for line in staged.lines() if "tokens/s, one user" in line)
        assert row[3:5] == [f"{ours:.1f}", f"{theirs:.1f}"]
        assert row[5] == f"{report['results']['session'][1]['ratio']['value']:.2f}"
        await staged.pilot.press("q")

    code, record = stage(flow, (base, other), clock)
    assert code == 0
    assert record.is_complete


def test_waits_are_paired_and_to_scale() -> None:
    """What the first lane computes again after a switch is a long bar, and a short one in the second."""
    clock = FakeClock()
    base, other = two_lanes(clock)
    base.hold_at = 1 + [step.name for step in SESSION].index("four answers")

    async def flow(staged: Staged) -> None:
        await staged.until_shown("four answers, A")
        rows = {name: staged.pane_lines(name) for name in "AB"}
        where, other_where = (
            next(i for i, line in enumerate(rows[name]) if "switch back" in line and "ms" in line) for name in "AB"
        )
        assert where == other_where
        long, short = (rows[name][where].count("█") for name in "AB")
        assert long > 4 * short

    stage(flow, (base, other), clock, plan=ONCE)


def test_a_lane_that_fails_says_so_and_the_other_goes_on() -> None:
    clock, base, other = held(TURN_3)
    other.go.set()
    other.fails_at = TURN_3
    base.hold_at = 4

    async def flow(staged: Staged) -> None:
        await staged.until(lambda: staged.pane_shows("B", "Failed (at turn 3): The engine's process is gone."))
        assert staged.pane_shows("A", "turn 4")
        base.go.set()
        await staged.until_shown("Done", "B: Failed (at turn 3): The engine's process is gone.")

    _, record = stage(flow, (base, other), clock)
    assert {sample.step for sample in record.session if sample.lane == "A"} == {f"turn {i}" for i in range(1, 5)}


def test_nobody_can_be_loaded() -> None:
    clock = FakeClock()

    async def flow(staged: Staged) -> None:
        await staged.until_shown("There is nothing to compare", "A: Failed: There is no room.")
        await staged.pilot.press("t", "t", "q")

    stage(flow, (FakeVariant(clock, fails_to_start=True), FakeVariant(clock, fails_to_start=True)), clock)


def test_pause() -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press("space")
        assert staged.shows("Paused: what runs comes to its end")
        assert staged.shows("Resume")
        assert staged.app.backstage.control is not None
        assert staged.app.backstage.control.paused
        before = other.n_asked
        other.go.set()
        await staged.until(lambda: len([s for s in staged.record.session if s.step == "turn 3"]) == 2)
        assert (other.n_asked, base.n_asked) == (before + 1, before + 1)
        await staged.pilot.press("space")
        assert not staged.shows("Paused")
        await staged.until_shown("Done")

    assert stage(flow, (base, other), clock)[1].is_complete


def test_skipping_the_session() -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press("n")
        await staged.until_shown("Done")

    plan = Plan(SHORT.session, (RawTest(512, 0, decodes=False),), (), repeat=1)
    record = stage(flow, (base, other), clock, plan=plan)[1]
    assert {sample.step for sample in record.session} == {"turn 1", "turn 2", "turn 3"}
    assert len(record.raw) == 6
    assert record.is_complete


def test_repeating_more_and_less_often() -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press("-", "-", "-")
        assert staged.shows("how often all is repeated: 1")
        await staged.pilot.press("+", "+", "-", "=", "-")
        assert staged.shows("how often all is repeated: 2")
        await staged.pilot.press("+")
        other.go.set()
        await staged.until_shown("Done")

    record = stage(flow, (base, other), clock, plan=replace(SHORT, repeat=2))[1]
    assert {sample.repeat for sample in record.session} == {0, 1, 2}
    assert "the session 3 times" in as_plain(record)


def test_raw_tests_show_a_live_table() -> None:
    clock, base, other = held(12)

    async def flow(staged: Staged) -> None:
        await staged.until(lambda: any("▶ tg64 @ d512" in line and "100.0" in line for line in staged.lines()))
        assert staged.app._main.view == FIGURES
        assert "1,000.0" in next(line for line in staged.lines() if "  pp512 @ d0" in line)
        other.go.set()
        await staged.until_shown("Done")
        ratio = as_json(staged.record)["results"]["raw"][1]["lanes"][1]["ratio"]
        assert ratio["value"] == pytest.approx(1.25)
        assert staged.shows("1.25")

    record = stage(flow, (base, other), clock, plan=RAW)[1]
    assert len(record.raw) == 12


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("escape", 0), ("ctrl+c", 130), ("ctrl+q", 0)])
def test_leaving_early_keeps_what_was_measured(key: str, code: int) -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press(key)
        await staged.until(lambda: not staged.app.is_running)

    left_with, record = stage(flow, (base, other), clock)
    assert left_with == code
    assert not record.is_complete
    assert not base.is_open
    assert not other.is_open
    assert {sample.step for sample in record.session if sample.lane == "B"} == {"turn 1", "turn 2"}
    text = as_plain(record)
    assert "turn 2" in text
    assert "In this session B gave one user" in " ".join(text.split())


def test_leaving_while_it_is_paused() -> None:
    clock, base, other = held(TURN_3)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press("space")
        other.go.set()
        await staged.pilot.press("q")
        await staged.until(lambda: not staged.app.is_running)

    assert stage(flow, (base, other), clock)[0] == 0


def test_saving(tmp_path: Path) -> None:
    clock, base, other = held(TURN_3)
    file = tmp_path / "record.json"

    async def enter(staged: Staged, text: str) -> None:
        await staged.pilot.press("ctrl+u")
        staged.app.screen.query_one("#save-name").value = text  # type: ignore[attr-defined]
        await staged.pilot.press("enter")

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.pilot.press("s")
        await staged.until_shown("compare-model-2026-01-02.json")
        await enter(staged, "")
        await staged.until_shown("Give it a name.")
        await enter(staged, str(tmp_path))
        await staged.until_shown("is a folder")
        await enter(staged, str(tmp_path / "none" / "record.json"))
        await staged.until_shown("cannot be written")
        file.write_text("mine")
        await enter(staged, str(file))
        await staged.until_shown("Enter replaces it")
        assert file.read_text() == "mine"
        await staged.pilot.press("enter")
        await staged.until(lambda: not isinstance(staged.app.screen, SaveDialog))
        assert {sample["step"] for sample in json.loads(file.read_text())["session"]} == {"turn 1", "turn 2", "turn 3"}
        await staged.pilot.press("s", "escape")
        assert not isinstance(staged.app.screen, SaveDialog)
        assert staged.app.is_running, "Esc has closed the dialog only"
        other.go.set()
        await staged.until_shown("Done")
        await staged.pilot.press("s")
        await enter(staged, str(tmp_path / "all.json"))
        await staged.until((tmp_path / "all.json").exists)

    record = stage(flow, (base, other), clock)[1]
    assert json.loads((tmp_path / "all.json").read_text()) == json.loads(json.dumps(as_json(record)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.json", "record.json"]


NASTY = "[bold red]loud[/] [@click=app.leave]here[/]\n\x1b[2J\x1b]0;mine\x07 \u202eback\r\x00 [/nothing] \\[x"


def test_control_characters_and_markup_do_nothing() -> None:
    clock, base, other = held(TURN_3)
    other.text = NASTY

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 3, B")
        await staged.until(lambda: staged.pane_shows("B", "[bold red]loud[/] [@click=app.leave]here[/]"))
        assert staged.pane_shows("B", "␛[2J␛]0;mine␇ <U+202E>back␍␀ [/nothing] \\[x")
        everything = "".join(staged.lines())
        assert not any(ord(character) < 32 for character in everything)
        other.go.set()
        await staged.until_shown("Done")

    assert stage(flow, (base, other), clock)[0] == 0


def test_names_and_errors_are_texts_too() -> None:
    clock = FakeClock()

    class Broken(FakeVariant):
        def start(self, on_loading: object) -> object:  # type: ignore[override]
            from engine.errors import OctavoError

            raise OctavoError(NASTY)

    async def flow(staged: Staged) -> None:
        await staged.until_shown("Done")
        assert staged.shows("[bold red]loud[/]")
        await staged.pilot.press("t")
        assert staged.pane_shows("A", "[bold red]loud[/]")

    stage(flow, (Broken(clock), FakeVariant(clock)), clock, plan=RAW)


@pytest.mark.parametrize("n_lanes", [2, 3, 4])
def test_all_is_there_in_a_small_terminal(n_lanes: int) -> None:
    clock = FakeClock()
    variants = [Actor(clock, text=f"Words {number}") for number in range(n_lanes)]
    variants[0].hold_at = 4

    async def flow(staged: Staged) -> None:
        await staged.until_shown("turn 4, A")
        await staged.pilot.resize_terminal(80, 24)
        await staged.pilot.pause()
        for number, name in enumerate("ABCD"[:n_lanes]):
            await staged.until(lambda name=name, number=number: staged.pane_shows(name, f"Words {number}"))
            assert staged.pane_shows(name, "turn 3")
            assert staged.pane_shows(name, "KV")
            assert any("turn 3" in line and set(line) & set("█▉▊▋▌▍▎▏") for line in staged.pane_lines(name))
        assert staged.shows("about") or staged.shows("%")
        assert staged.shows("Quit")
        await staged.pilot.resize_terminal(20, 5)
        await staged.pilot.resize_terminal(200, 60)
        await staged.pilot.pause()
        assert staged.pane_shows("A", "turn 3")
        variants[0].go.set()
        await staged.until_shown("Done")

    stage(flow, variants, clock)
