"""The runner with engines whose speeds are known: what it measures, in which order, and what disturbs it."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from app.compare.events import Ended, Event, LaneFailed, Measured, Turn
from app.compare.lanes import Answer, BatchTest, OnText, Stopped
from app.compare.record import RawSample, StepSample
from app.compare.results import results_of
from app.compare.scenarios import SESSION, Plan, RawTest, Session
from app.compare.statistics import Verdict
from engine.messages import Role, TextRequest, TokenPrompt
from tests.app.compare.fake_lane import FakeBatchVariant, FakeClock, FakeVariant, Harness, lane, tokens_of

TESTS = (RawTest(512, 0, decodes=False), RawTest(64, 512, decodes=True), RawTest(512, 2048, decodes=False))
RAW = Plan(None, TESTS, (), repeat=2)
PLAYED = Plan(Session(SESSION, answer_tokens=8), (), (), repeat=2)


def two_lanes(clock: FakeClock, **faster: float) -> tuple[FakeVariant, FakeVariant]:
    log: list[tuple[str, TextRequest]] = []
    return FakeVariant(clock, log=log), FakeVariant(clock, log=log, keeps_all=True, **faster)


def order(harness: Harness, test: str) -> list[str]:
    return [event.lane for event in harness.events if isinstance(event, Turn) and event.test == test]


def test_raw_ratios_are_recovered_while_the_machine_drifts() -> None:
    """It becomes up to twice as slow, by 1 % from one measurement to the next."""
    clock = FakeClock(drift=0.01)
    base, other = two_lanes(clock, prefill=1300.0, decode=137.0)
    record = Harness(clock, [lane("A", base), lane("B", other)], RAW).run()
    assert record.is_complete
    for row in results_of(record).raw:
        ratio = row.lanes[1].ratio
        assert ratio is not None
        assert ratio.value == pytest.approx(1.37 if row.test.startswith("tg") else 1.3, rel=0.02)
        assert ratio.verdict is Verdict.FASTER
        assert row.lanes[0].ratio is None


def test_equal_lanes_are_not_different() -> None:
    clock = FakeClock(drift=0.02, seed=3)
    record = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], RAW).run()
    verdicts = [row.lanes[1].ratio.verdict for row in results_of(record).raw if row.lanes[1].ratio]
    assert verdicts == [Verdict.NO_DIFFERENCE] * 3


def test_the_session_ratio_is_recovered() -> None:
    """The engines decode alike; one of them finds what the other has to compute again."""
    clock = FakeClock(drift=0.005)
    base, other = two_lanes(clock)
    record = Harness(clock, [lane("A", base), lane("B", other)], PLAYED).run()
    ours, theirs = ([s for s in record.session if s.lane == name and s.repeat == 0] for name in "BA")

    def seconds(samples: list[StepSample]) -> float:
        computed = sum(sample.computed_tokens or 0 for sample in samples)
        decoded = sum(sample.generated_tokens - 1 for sample in samples)
        return computed / 1000 + decoded / 100 + 0.01 * len(samples)

    figure = results_of(record).session[1]
    assert figure.ratio is not None
    assert figure.ratio.value == pytest.approx(seconds(theirs) / seconds(ours), rel=0.02)
    assert figure.ratio.verdict is Verdict.FASTER
    assert figure.generated_tokens == 8 * (len(SESSION) + 3)
    assert figure.tokens_per_s.median == pytest.approx(figure.generated_tokens / seconds(ours), rel=0.35)
    assert sum(s.computed_tokens or 0 for s in ours) < sum(s.computed_tokens or 0 for s in theirs)


def test_lanes_alternate_a_b_b_a() -> None:
    clock = FakeClock()
    harness = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], RAW)
    harness.run()
    assert order(harness, "pp512 @ d0") == list("ABBAABBAAB")
    harness = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], PLAYED)
    harness.run()
    turns = [event for event in harness.events if isinstance(event, Turn)]
    assert "".join(turn.lane for turn in turns[:8]) == "ABBAABBA"
    # and what came first in a step's first repeat comes second in the other
    for step in SESSION:
        assert order(harness, step.name) in (list("ABBA"), list("BAAB"))


def test_what_is_timed_is_new_and_what_is_known_is_known() -> None:
    clock = FakeClock()
    log: list[tuple[str, TextRequest]] = []
    Harness(clock, [lane("A", FakeVariant(clock, log=log)), lane("B", FakeVariant(clock, log=log))], RAW).run()
    prompts = [(name, request.prompt.token_ids) for name, request in log if isinstance(request.prompt, TokenPrompt)]
    by_lane = {name: [ids for who, ids in prompts if who == name] for name in "AB"}
    assert sorted(by_lane["A"]) == sorted(by_lane["B"])
    deep = [ids for ids in by_lane["A"] if len(ids) == 2048 + 512]
    assert len(deep) == len(set(deep)) == 5
    assert len({ids[:2048] for ids in deep}) == 1
    assert {ids[:512] for ids in by_lane["A"] if len(ids) == 513} == {deep[0][:512]}


def test_each_measurement_counts_the_faster_variant_and_lets_the_slower_rest() -> None:
    clock = FakeClock()
    on = FakeVariant(clock, "flash on", prefill=1000, decode=80)
    off = FakeVariant(clock, "flash off", prefill=800, decode=100)
    record = Harness(clock, [lane("A", on, off), lane("B", FakeVariant(clock))], RAW).run()
    prefill, decode, _ = results_of(record).raw
    assert [speed.variant for speed in prefill.lanes[0].variants] == ["flash on", "flash off"]
    assert [speed.variant for speed in decode.lanes[0].variants] == ["flash off", "flash on"]
    assert [speed.tokens_per_s.n for speed in decode.lanes[0].variants] == [5, 2]
    assert decode.lanes[1].ratio is not None
    assert decode.lanes[1].ratio.value == pytest.approx(1)
    off.prefill = 1100
    record = Harness(clock, [lane("A", on, off), lane("B", FakeVariant(clock))], PLAYED).run()
    played = [{sample.repeat for sample in record.session if sample.variant == each.name} for each in (on, off)]
    assert played == [{0}, {0, 1}]
    assert [speed.variant for speed in results_of(record).session[0].variants] == ["flash off", "flash on"]


def test_every_lane_gets_the_reference_s_answers() -> None:
    clock = FakeClock()
    base, other = two_lanes(clock)
    other.token = 8
    harness = Harness(clock, [lane("A", base), lane("B", other)], PLAYED)
    record = harness.run()
    session = [(name, tokens_of(request)) for name, request in base.log if len(tokens_of(request)) > 1000]
    assert sorted(ids for name, ids in session if name == "A") == sorted(ids for name, ids in session if name == "B")
    answers = {m.content for _, r in base.log for m in r.prompt if not isinstance(m, int) and m.role == Role.ASSISTANT}
    assert answers == {"A said 7"}
    greedy = [step.name for step in SESSION if step.n == 1]
    assert [each.step for each in record.differences] == greedy
    assert {(each.lane, each.position, each.token, each.reference_token) for each in record.differences} == {
        ("B", 0, 8, 7)
    }
    assert [each.gap for each in record.differences] == [0.5 + i for i in range(len(greedy))]
    assert all(case.before == () for case in harness.gap_cases)


def test_a_step_that_quits_begins_with_an_empty_cache() -> None:
    clock = FakeClock()
    base, other = two_lanes(clock)
    record = Harness(clock, [lane("A", base), lane("B", other)], PLAYED).run()
    last = [sample for sample in record.session if sample.step == "quit, come back"]
    assert {sample.cache_survived for sample in last} == {False}
    assert {sample.reused_tokens for sample in last} == {0}
    assert {s.cache_survived for s in record.session if s.step != "quit, come back"} == {None}
    assert base.starts == 4  # loaded, quit, a fresh start for the second repeat, quit


@pytest.mark.parametrize("plan", [RAW, PLAYED])
def test_a_lane_that_fails_shows_its_error_and_the_other_one_finishes(plan: Plan) -> None:
    clock = FakeClock()
    base, other = two_lanes(clock)
    other.fails_at = 7
    harness = Harness(clock, [lane("A", base), lane("B", other)], plan)
    record = harness.run()
    (error,) = record.errors
    assert (error.lane, error.message) == ("B", "The engine's process is gone.")
    assert error.test
    assert [event.error for event in harness.events if isinstance(event, LaneFailed)] == [error]
    assert not other.is_open
    whole = Harness(clock, [lane("A", FakeVariant(clock))], plan).run()
    assert len([s for s in (*record.raw, *record.session) if s.lane == "A"]) == len((*whole.raw, *whole.session))
    assert record.is_complete


def test_the_reference_fails_and_the_next_one_takes_its_place() -> None:
    clock = FakeClock()
    base, other = two_lanes(clock)
    base.fails_at = 4
    record = Harness(clock, [lane("A", base), lane("B", other)], PLAYED).run()
    assert len({s.step for s in record.session if s.lane == "B"}) == len(SESSION)
    assert [figure.lane for figure in results_of(record).session] == ["B"]
    assert results_of(record).session[0].ratio is None


def test_a_lane_that_cannot_be_loaded() -> None:
    clock = FakeClock()
    base = FakeVariant(clock, fails_to_start=True)
    record = Harness(clock, [lane("A", base), lane("B", FakeVariant(clock))], RAW).run()
    assert [(error.lane, error.test) for error in record.errors] == [("A", "")]
    assert {sample.lane for sample in record.raw} == {"B"}
    assert all(row.lanes[0].ratio is None for row in results_of(record).raw)


def test_nobody_is_left() -> None:
    clock = FakeClock()
    harness = Harness(clock, [lane("A", FakeVariant(clock, fails_to_start=True))], Plan(PLAYED.session, TESTS, (), 2))
    record = harness.run()
    assert len(record.errors) == 2
    assert isinstance(harness.events[-1], Ended)


def test_everybody_fails_on_the_way() -> None:
    clock = FakeClock()
    record = Harness(
        clock, [lane("A", FakeVariant(clock, fails_at=4)), lane("B", FakeVariant(clock, fails_at=4))], PLAYED
    )
    assert len(record.run().errors) == 2
    assert {figure.n_steps for figure in results_of(record.record).session} == set()


def test_a_cache_that_cannot_step_back_is_not_measured_where_that_matters() -> None:
    """It finds the known tokens only when they are all that it holds, so that the lane's figures would be others."""
    clock = FakeClock()
    base = FakeVariant(clock, steps_back=False)
    record = Harness(clock, [lane("A", base), lane("B", FakeVariant(clock))], RAW).run()
    assert len([s for s in record.raw if s.lane == "A" and s.test == "pp512 @ d2048"]) == 5
    forgets = FakeVariant(clock)
    forgets._reuse = lambda _prompt: 0  # type: ignore[method-assign]
    record = Harness(clock, [lane("A", forgets), lane("B", FakeVariant(clock))], RAW).run()
    assert [error.test for error in record.errors] == ["tg64 @ d512", "pp512 @ d2048"]
    assert "513 tokens were computed where 1 were new" in record.errors[0].message
    assert len([s for s in record.raw if s.lane == "A"]) == 5
    assert len([s for s in record.raw if s.lane == "B"]) == 15


def test_engines_that_do_not_fit_together_run_one_after_the_other() -> None:
    clock = FakeClock()
    base, other = two_lanes(clock)
    open_together = []

    def watch(_event: Event) -> None:
        open_together.append(base.is_open and other.is_open)

    plan = Plan(PLAYED.session, TESTS, (), repeat=2)
    lanes = [lane("A", base, bytes_needed=6), lane("B", other, bytes_needed=5)]
    harness = Harness(clock, lanes, plan, available=10, on_event=watch)
    record = harness.run()
    assert not any(open_together)
    assert sum("do not fit in the free memory together" in note for note in record.notes) == 2
    turns = [event.lane for event in harness.events if isinstance(event, Turn)]
    assert [name for name, _ in groupby(turns)] == list("ABAB")
    assert record.differences == []
    ratio = results_of(record).session[1].ratio
    assert ratio is not None
    assert ratio.verdict is Verdict.FASTER
    both = Harness(clock, lanes, plan, available=11, on_event=watch)
    open_together.clear()
    both.run()
    assert any(open_together)


def test_batches() -> None:
    clock = FakeClock(drift=0.01)
    tests = (BatchTest(1, 64, 32), BatchTest(4, 64, 32))
    a, b = FakeBatchVariant(clock, "unified"), FakeBatchVariant(clock, speed=150.0)
    plan = Plan(None, (), tests, repeat=2)
    batch = [lane("A", a), lane("B", b)]  # type: ignore[arg-type]
    record = Harness(clock, [lane("A"), lane("B")], plan, batch=batch).run()  # type: ignore[arg-type]
    rows = results_of(record).raw
    assert [row.test for row in rows] == ["tg32 x1 @ d64", "tg32 x4 @ d64"]
    for row in rows:
        assert row.lanes[1].ratio is not None
        assert row.lanes[1].ratio.value == pytest.approx(1.5, rel=0.02)


def test_stopping_keeps_what_was_measured() -> None:
    clock = FakeClock()
    plan = Plan(PLAYED.session, TESTS, (), repeat=2)

    def stop_at_turn_3(event: Event) -> None:
        if isinstance(event, Turn) and event.test == "turn 3":
            harness.control.stop()

    variants = two_lanes(clock)
    harness = Harness(clock, [lane(*pair) for pair in zip("AB", variants, strict=True)], plan, on_event=stop_at_turn_3)
    record = harness.run()
    assert not record.is_complete
    assert record.raw == []
    assert {sample.step for sample in record.session} == {"turn 1", "turn 2"}
    assert isinstance(harness.events[-1], Ended)
    assert not any(variant.is_open for variant in variants)
    assert results_of(record).session[0].n_steps == 2


def test_skipping_goes_on_with_the_next_scenario() -> None:
    clock = FakeClock()

    def skip(event: Event) -> None:
        if isinstance(event, Turn) and (event.test, event.round, event.lane) == ("tg64 @ d512", 1, "A"):
            harness.control.skip()

    harness = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], RAW, on_event=skip)
    record = harness.run()
    counts = {test.name: len([s for s in record.raw if s.test == test.name]) for test in TESTS}
    assert counts == {"pp512 @ d0": 10, "tg64 @ d512": 3, "pp512 @ d2048": 10}
    assert record.is_complete
    assert record.errors == []


def test_a_pause_begins_nothing_new_and_loses_nothing() -> None:
    clock = FakeClock()
    harness = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], RAW)
    harness.control.pause()
    assert harness.control.paused
    with pytest.MonkeyPatch.context() as patch:
        waits = []

        def wait() -> bool:
            waits.append(len(harness.events))
            harness.control.resume()
            return True

        patch.setattr(harness.control._go, "wait", wait)
        record = harness.run()
    assert waits[0] == 2  # both are loaded, nothing is measured
    assert not harness.control.paused
    assert len(record.raw) == 30


def test_the_number_of_repeats_can_be_changed_on_the_way() -> None:
    clock = FakeClock()

    def more(event: Event) -> None:
        if isinstance(event, Measured) and isinstance(event.sample, RawSample) and event.sample.test == "tg64 @ d512":
            harness.control.repeat = 4

    harness = Harness(clock, [lane("A", FakeVariant(clock))], RAW, on_event=more)
    record = harness.run()
    assert [len([s for s in record.raw if s.test == test.name]) for test in TESTS] == [5, 9, 9]


def test_progress_goes_from_nothing_to_nearly_all_and_tells_the_time_left() -> None:
    clock = FakeClock()
    plan = Plan(PLAYED.session, TESTS, (), repeat=2)
    harness = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", FakeVariant(clock))], plan)
    seen: list[tuple[float, float, float | None]] = []
    harness.comparison._stage.on_event = lambda event: (
        seen.append((clock.now, event.done, event.seconds_left)) if isinstance(event, Turn) else None
    )
    harness.run()
    done = [each for _, each, _ in seen]
    assert done == sorted(done)
    assert done[0] == 0
    assert 0.9 < done[-1] < 1
    assert seen[0][2] is None
    begin, end = seen[0][0], clock.now
    for now, _, left in seen[len(seen) // 2 :]:
        assert left is not None
        assert now + left - begin == pytest.approx(end - begin, rel=0.6)


class FakeServer(FakeVariant):
    """Is measured from outside. extra: tokens that it computes besides the new ones; None where it tells nothing."""

    extra: int | None = None
    shorter: int = 0

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        answer = super().ask(request, on_text, stopped)
        assert answer.computed_tokens is not None
        return replace(
            answer,
            token_ids=(),
            generated_tokens=answer.generated_tokens - self.shorter,
            engine=None,
            prefill_s=None,
            computed_tokens=None if self.extra is None else answer.computed_tokens + self.extra,
        )


def test_raw_speed_of_a_server_is_what_is_seen_from_outside() -> None:
    clock = FakeClock()
    base, server = two_lanes(clock)
    server = FakeServer(clock, prefill=500.0, decode=50.0)
    record = Harness(clock, [lane("A", base), lane("B", server)], RAW).run()
    assert not record.errors
    of_server = [sample for sample in record.raw if sample.lane == "B"]
    assert len(of_server) == 15
    assert all(sample.engine_s == sample.user_s for sample in of_server)
    assert of_server[0].engine_s == pytest.approx(512 / 500 + 0.01)
    server.extra = 20
    record = Harness(clock, [lane("A", base), lane("B", server)], RAW).run()
    first = next(sample for sample in record.raw if sample.lane == "B")
    assert (first.n_tokens, len(record.errors)) == (532, 0), "its speed is that of what it computed"


@pytest.mark.parametrize(
    ("extra", "shorter", "tests", "message"),
    [
        (500, 0, [test.name for test in TESTS], "1,012 tokens were computed where 512 were new"),
        (None, 3, ["tg64 @ d512"], "ended after 62 of 65 tokens"),
    ],
)
def test_a_server_that_does_something_else_is_not_measured(
    extra: int | None, shorter: int, tests: list[str], message: str
) -> None:
    clock = FakeClock()
    server = FakeServer(clock)
    server.extra, server.shorter = extra, shorter
    record = Harness(clock, [lane("A", FakeVariant(clock)), lane("B", server)], RAW).run()
    assert [error.test for error in record.errors] == tests
    assert message in record.errors[0].message
