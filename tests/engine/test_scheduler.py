"""What the scheduler does, one situation at a time; the numbers can be worked out by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from engine.errors import MemoryLimitError, PromptError
from engine.interface import Event
from engine.kv_manager import KvManager
from engine.scheduler import Scheduler
from engine.sequence import FinishReason, Priority, Request, TokenEvent
from tests.engine.fake_engine import FakeEngine, direct_answer

BACKGROUND = Priority.BACKGROUND


def engine(**options: Any) -> FakeEngine:
    defaults = {"n_blocks": 64, "block_size": 4, "context": 200, "token_budget": 32, "max_sequences": 8}
    return FakeEngine(**{**defaults, **options})


def prompt(n_tokens: int, start: int = 0) -> tuple[int, ...]:
    return tuple((start + i) % 250 for i in range(n_tokens))


def chunks(plan: Any) -> list[tuple[int, int, int]]:
    """(request, start, n_tokens) of each chunk."""
    return [(chunk.sequence.request_id, chunk.start, chunk.n_tokens) for chunk in plan.chunks]


def cost(fake: FakeEngine, request_id: int, index: int = 0) -> tuple[int, int, int, int]:
    """Tokens of the prompt, reused, computed; tokens generated."""
    return dataclasses.astuple(fake.stats(request_id, index))[:4]


class TestWhatIsComputed:
    """The promise: no token is ever processed twice."""

    def ask(self, fake: FakeEngine, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], int, int]:
        """The conversation after an answer of 10 tokens; prompt tokens reused and computed."""
        request_id = fake.submit(Request(tokens, max_tokens=10))
        fake.finish()
        stats = fake.stats(request_id)
        return (*tokens, *fake.answers[request_id, 0].tokens), stats.reused_tokens, stats.computed_tokens

    def test_next_turn_computes_only_what_is_new(self) -> None:
        fake = engine()
        history, reused, computed = self.ask(fake, prompt(22))
        assert (reused, computed) == (0, 22)
        # 32 tokens, of which the last was drawn but never computed: 31 in the pool, 28 of them in full blocks.
        assert self.ask(fake, history + prompt(5, 100))[1:] == (31, 6)
        assert not any(plan.copies for plan in fake.plans), "the block that was not full is gone on with"

    def test_regenerating_computes_one_token(self) -> None:
        fake = engine()
        self.ask(fake, prompt(22))
        assert self.ask(fake, prompt(22))[1:] == (21, 1)
        assert len([copy for plan in fake.plans for copy in plan.copies]) == 1, "the first answer goes on otherwise"

    def test_a_prompt_of_whole_blocks_still_computes_its_last_token(self) -> None:
        fake = engine()
        self.ask(fake, prompt(24))
        assert self.ask(fake, prompt(24))[1:] == (23, 1)

    def test_editing_turn_two_of_six_keeps_turn_one(self) -> None:
        fake = engine(context=400, n_blocks=200)
        history: tuple[int, ...] = ()
        turns = []
        for turn in range(6):
            turns.append(history)
            history, _, _ = self.ask(fake, history + prompt(13, 20 * turn))
        assert len(turns[1]) == 23
        edited = turns[1] + prompt(13, 200)
        assert self.ask(fake, edited)[1:] == (23, 13)

    def test_switching_chats_and_back(self) -> None:
        fake = engine()
        a, _, _ = self.ask(fake, prompt(22))
        _, reused, computed = self.ask(fake, prompt(30, 100))
        assert (reused, computed) == (0, 30)
        assert self.ask(fake, a + prompt(3, 60))[1:] == (31, 4)

    def test_equal_prompts_submitted_together_are_computed_once(self) -> None:
        fake = engine()
        ids = [fake.submit(Request(prompt(22), max_tokens=3)) for _ in range(4)]
        fake.finish()
        assert [fake.stats(i).computed_tokens for i in ids] == [22, 2, 2, 2]
        fake.check_idle()

    def test_several_answers_share_one_prompt(self) -> None:
        fake = engine()
        request_id = fake.submit(Request(prompt(22), max_tokens=3, n=3))
        plan = fake.step()
        assert plan is not None
        [chunk] = plan.chunks
        assert [s.index for s in chunk.samples] == [0, 1, 2]
        assert fake.scheduler.stats().blocks_used == 6
        plan = fake.step()
        assert plan is not None
        assert [s.sequence.index for s in plan.chunks] == [0, 1, 2]
        assert len(plan.copies) == 2, "the last to write the partial block keeps it"
        assert fake.scheduler.stats().blocks_used == 5 + 3
        fake.finish()
        fake.check_idle()
        assert [cost(fake, request_id, i)[:3] for i in range(3)] == [(22, 0, 22), (22, 22, 0), (22, 22, 0)]
        assert fake.scheduler.stats().computed_tokens == 22


class TestSteps:
    def test_decodes_and_prompt_chunks_share_the_budget(self) -> None:
        fake = engine(token_budget=10, max_sequences=4)
        first = fake.submit(Request(prompt(6)))
        fake.step()
        second = fake.submit(Request(prompt(25, 100)))
        plans = [fake.step() for _ in range(4)]
        assert [chunks(plan) for plan in plans] == [
            [(first, 6, 1), (second, 0, 9)],
            [(first, 7, 1), (second, 9, 9)],
            [(first, 8, 1), (second, 18, 7)],
            [(first, 9, 1), (second, 25, 1)],
        ]

    def test_short_prompts_start_together(self) -> None:
        fake = engine()
        ids = [fake.submit(Request(prompt(10, 50 * i))) for i in range(4)]
        assert chunks(fake.step()) == [(ids[0], 0, 10), (ids[1], 0, 10), (ids[2], 0, 10), (ids[3], 0, 2)]

    def test_interactive_goes_before_background(self) -> None:
        fake = engine(max_sequences=1)
        background = [fake.submit(Request(prompt(5, i), max_tokens=2, priority=BACKGROUND)) for i in range(2)]
        interactive = [fake.submit(Request(prompt(5, 10 + i), max_tokens=2)) for i in range(2)]
        fake.finish()
        starts = [chunk[0] for plan in fake.plans for chunk in chunks(plan) if chunk[1] == 0]
        assert starts == interactive + background

    def test_a_background_answer_makes_way_and_ends_the_same(self) -> None:
        fake = engine(n_blocks=8, max_sequences=4)
        slow = Request(prompt(9), max_tokens=20, priority=BACKGROUND)
        background = fake.submit(slow)
        for _ in range(8):
            fake.step()
        urgent = fake.submit(Request(prompt(15, 100), max_tokens=10))
        fake.step()
        assert [s.request_id for s in fake.scheduler.running] == [urgent]
        fake.finish()
        assert fake.answers[background, 0].tokens == direct_answer(slow, 0, fake.scheduler.window)[0]
        stats = fake.scheduler.stats()
        assert stats.preemptions == 1
        assert stats.recomputed_tokens < 9 + 8, "a part was found in the prefix cache"
        assert stats.reused_tokens + stats.computed_tokens == 9 + 15
        assert cost(fake, background) == (9, 0, 9, 20)

    def test_a_background_answer_gives_up_its_place(self) -> None:
        fake = engine(max_sequences=1)
        fake.submit(Request(prompt(9), priority=BACKGROUND))
        fake.step()
        urgent = fake.submit(Request(prompt(5, 100)))
        assert chunks(fake.step()) == [(urgent, 0, 5)]

    def test_a_background_answer_goes_on_where_making_way_would_not_help(self) -> None:
        fake = engine(n_blocks=30)
        fake.submit(Request(prompt(60), max_tokens=8))
        fake.step()
        fake.submit(Request(prompt(16, 100), max_tokens=8, priority=BACKGROUND))
        fake.step()
        fake.submit(Request(prompt(62, 150), max_tokens=5))  # 16 blocks, of which 14 would be free at most
        fake.step()
        assert [s.request_id for s in fake.scheduler.running] == [1, 2]
        assert fake.scheduler.stats().preemptions == 0

    def test_an_interactive_prompt_does_not_wait_for_a_background_prompt(self) -> None:
        fake = engine(token_budget=10)
        slow = fake.submit(Request(prompt(50), priority=BACKGROUND))
        fake.step()
        urgent = fake.submit(Request(prompt(12, 100)))
        assert chunks(fake.step()) == [(urgent, 0, 10)]
        assert chunks(fake.step()) == [(urgent, 10, 2), (slow, 10, 8)]
        assert chunks(fake.step()) == [(urgent, 12, 1), (slow, 18, 9)]

    def test_the_wait_after_a_preemption_counts_as_prefill(self) -> None:
        fake = engine(token_budget=10, max_sequences=1)
        slow = fake.submit(Request(prompt(25), max_tokens=1, priority=BACKGROUND))
        fake.step()
        fake.submit(Request(prompt(5, 100), max_tokens=3))
        fake.finish()
        # Steps: 10 of 25 tokens; three for the other; from 8 cached tokens on, 10 and 7 tokens.
        assert len(fake.plans) == 6
        assert cost(fake, slow) == (25, 0, 25, 1)
        assert fake.stats(slow).prefill_s == 6

    def test_tokens_count_as_computed_once_however_often_they_are_lost(self) -> None:
        fake = engine(n_blocks=8, token_budget=10, max_sequences=1)
        slow = fake.submit(Request(prompt(25), max_tokens=1, priority=BACKGROUND))
        fake.step()
        fake.step()
        for start in (100, 150):  # each takes all blocks; the second comes when 10 of the 20 lost tokens are back
            urgent = fake.submit(Request(prompt(30, start), max_tokens=1))
            while not fake.answers[urgent, 0].ends:
                fake.step()
            fake.step()
        fake.finish()
        fake.check_idle()
        assert cost(fake, slow) == (25, 0, 25, 1)
        assert fake.scheduler.stats().computed_tokens == 25 + 2 * 30

    def test_reused_tokens_that_are_lost_count_as_reused_only_once_they_are_back(self) -> None:
        fake = engine(n_blocks=8, token_budget=4, max_sequences=1)
        fake.answer(Request(prompt(25), max_tokens=1, priority=BACKGROUND))
        slow = fake.submit(Request(prompt(31), max_tokens=1, priority=BACKGROUND))
        fake.step()
        fake.submit(Request(prompt(31, 100), max_tokens=1))  # takes all blocks
        fake.finish()
        progress = [(event.done, event.reused) for event in fake.prefill_events if event.request_id == slow]
        assert progress == [(29, 25), *((start + 4, start) for start in range(0, 28, 4)), (31, 25)]

    def test_interactive_answers_do_not_displace_each_other_to_start(self) -> None:
        fake = engine(max_sequences=1)
        first = fake.submit(Request(prompt(9)))
        fake.step()
        fake.submit(Request(prompt(5, 100)))
        assert chunks(fake.step()) == [(first, 9, 1)]

    def test_when_memory_runs_out_the_latest_answer_waits_its_turn(self) -> None:
        fake = engine(n_blocks=6)
        requests = [Request(prompt(7, 30 * i), max_tokens=12) for i in range(2)]
        ids = [fake.submit(request) for request in requests]
        fake.finish()
        fake.check_idle()
        assert fake.scheduler.stats().preemptions > 0
        ends = [event for plan in fake.plans for event in chunks(plan)]
        assert ends[-1][0] == ids[1]

    def test_background_blocks_are_evicted_first(self) -> None:
        fake = engine(n_blocks=12)
        chat = fake.answer(Request(prompt(15), max_tokens=2))
        for i in range(4):
            fake.answer(Request(prompt(16, 100 + 20 * i), max_tokens=1, priority=BACKGROUND))
        assert fake.scheduler.stats().evictions > 0
        again = fake.submit(Request((*prompt(15), *chat), max_tokens=1))
        fake.finish()
        assert fake.stats(again).reused_tokens == 16

    def test_a_background_block_that_a_chat_uses_is_kept(self) -> None:
        fake = engine(n_blocks=12)
        fake.answer(Request(prompt(17), max_tokens=1, priority=BACKGROUND))
        fake.answer(Request(prompt(17), max_tokens=1))
        for i in range(4):
            fake.answer(Request(prompt(16, 100 + 20 * i), max_tokens=1, priority=BACKGROUND))
        again = fake.submit(Request(prompt(17), max_tokens=1))
        fake.finish()
        assert fake.stats(again).reused_tokens == 16

    def test_a_long_conversation_stays_in_one_run(self) -> None:
        fake = engine(n_blocks=200, context=500)
        history = prompt(20)
        for turn in range(8):
            fake.answer(Request(prompt(12, 100 + 15 * turn), max_tokens=3, priority=BACKGROUND))
            request_id = fake.submit(Request(history, max_tokens=12))
            fake.step()
            [sequence] = fake.scheduler.running
            assert len(sequence.tables[0].runs()) == 1
            fake.finish()
            history = (*history, *fake.answers[request_id, 0].tokens, *prompt(9, 60))


class TestEnds:
    def test_the_stop_token_is_not_emitted(self) -> None:
        request = Request(prompt(5), stop_tokens=frozenset({0}))
        expected, reason = direct_answer(request, 0, 200)
        assert reason is FinishReason.STOP
        fake = engine()
        request_id = fake.submit(request)
        fake.finish()
        assert fake.answers[request_id, 0].tokens == expected
        assert fake.answers[request_id, 0].ends[0][0] is FinishReason.STOP
        assert fake.stats(request_id).generated_tokens == len(expected)

    @pytest.mark.parametrize(("n_blocks", "context", "n_generated"), [(64, 20, 15), (3, 200, 8)])
    def test_an_answer_ends_where_the_context_or_the_pool_is_full(
        self, n_blocks: int, context: int, n_generated: int
    ) -> None:
        fake = engine(n_blocks=n_blocks, context=context)
        assert len(fake.answer(Request(prompt(5)))) == n_generated
        fake.check_idle()

    @pytest.mark.parametrize(
        ("request_", "error", "words"),
        [
            (Request(()), PromptError, "empty"),
            (Request(prompt(23)), PromptError, "4 more than fit a context of 20"),
            (Request(prompt(13)), MemoryLimitError, "1 more than the KV cache holds"),
            (Request(prompt(3), max_tokens=0), PromptError, "at least one"),
            (Request(prompt(3), n=0), PromptError, "at least one"),
        ],
    )
    def test_what_cannot_be_answered_is_refused(self, request_: Request, error: type[Exception], words: str) -> None:
        fake = engine(n_blocks=3, context=20)
        with pytest.raises(error, match=words):
            fake.submit(request_)
        assert not fake.scheduler.has_work()

    def test_the_largest_prompts_are_answered(self) -> None:
        assert len(engine(context=20).answer(Request(prompt(19)))) == 1
        assert len(engine(n_blocks=3).answer(Request(prompt(12)))) == 1

    def test_times_are_measured_from_the_clock(self) -> None:
        now = [100.0]
        scheduler = Scheduler(KvManager(n_blocks=8, block_size=4), context=30, clock=lambda: now[0])
        request_id = scheduler.submit(Request(prompt(6), max_tokens=2))
        events: list[Event] = []
        for seconds in (1.0, 2.0):
            now[0] += 0.5
            plan = scheduler.schedule()
            assert plan is not None
            now[0] += seconds
            events = scheduler.complete(plan, {chunk.sequence.sequence_id: [9] for chunk in plan.chunks})
        [event] = events
        assert isinstance(event, TokenEvent)
        assert event[:4] == (request_id, 0, 9, FinishReason.LENGTH)
        assert event.stats is not None
        assert (event.stats.ttft_s, event.stats.prefill_s, event.stats.decode_s) == (1.5, 1.0, 2.5)


def test_every_running_sequence_must_fit_a_step() -> None:
    with pytest.raises(ValueError, match="running sequence"):
        engine(max_sequences=8, token_budget=7)


def test_nothing_to_do_is_no_plan() -> None:
    assert engine().scheduler.schedule() is None


def test_who_was_second_to_compute_a_block_replaces_the_first_when_nobody_uses_that() -> None:
    fake = engine(n_blocks=6, block_size=2, max_sequences=2, token_budget=2)
    # The prompts have no full block, so neither waits for the other; both answers are the same.
    first, second = (fake.submit(Request(prompt(1), max_tokens=n)) for n in (5, 9))
    fake.finish()
    fake.check_idle()
    answer = fake.answers[second, 0].tokens
    assert fake.answers[first, 0].tokens == answer[:5]
    assert fake.scheduler.stats().evictions == 0
    assert fake.scheduler.stats().blocks_cached == 5, "each content once, and what the second ended with"
    again = fake.submit(Request((*prompt(1), *answer), max_tokens=1))
    fake.finish()
    assert fake.stats(again).reused_tokens == 9
