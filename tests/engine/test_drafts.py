"""What the scheduler does with draft tokens, one situation at a time."""

from __future__ import annotations

from typing import Any

import pytest

from engine.sequence import FinishReason, Request, Sequence
from tests.engine.fake_engine import VOCABULARY, FakeEngine, Guesses, direct_answer, next_token


class Scripted(Guesses):
    """Drafts of so many right tokens followed by so many wrong ones, as far as there is room."""

    def __init__(self, n_right: int, n_wrong: int) -> None:
        super().__init__()
        self.n_right = n_right
        self.n_wrong = n_wrong

    def draft(self, sequence: Sequence, limit: int) -> tuple[int, ...]:
        super().draft(sequence, limit)
        history = list(sequence.token_ids)
        for i in range(min(limit, self.n_right + self.n_wrong)):
            right = next_token(history, sequence.index)
            history.append(right if i < self.n_right else (right + 1) % VOCABULARY)
        self.draft_given = tuple(history[len(sequence.token_ids) :])
        return self.draft_given


def engine(n_right: int, n_wrong: int, **options: Any) -> FakeEngine:
    defaults = {"n_blocks": 64, "block_size": 4, "context": 200, "token_budget": 32, "max_sequences": 8}
    return FakeEngine(guesses=Scripted(n_right, n_wrong), **{**defaults, **options})


def prompt(n_tokens: int, start: int = 0) -> tuple[int, ...]:
    return tuple((start + i) % 250 for i in range(n_tokens))


def widths(fake: FakeEngine) -> list[list[int]]:
    """Tokens of each chunk, step by step."""
    return [[chunk.n_tokens for chunk in plan.chunks] for plan in fake.plans]


@pytest.mark.parametrize(
    ("n_right", "n_wrong", "expected"),
    [
        (3, 0, [[6], [4], [4], [4], [3]]),
        (2, 3, [[6], [6], [6], [6], [6], [3]]),
        (0, 5, [[6], *([n] for n in (6,) * 10), [5], [4], [3], [2], [1]]),
    ],
    ids=["right", "right at first", "wrong"],
)
def test_a_step_yields_what_is_right_and_one_token_more(n_right: int, n_wrong: int, expected: list[list[int]]) -> None:
    fake = engine(n_right, n_wrong)
    request = Request(prompt(6), max_tokens=16)
    request_id = fake.submit(request)
    fake.finish()
    assert widths(fake) == expected
    fake.check_idle()
    stats = fake.stats(request_id)
    n_steps = len(expected) - 1
    assert stats.drafted_tokens == sum(n - 1 for [n] in expected[1:])
    assert stats.accepted_tokens == 15 - n_steps
    assert stats.generated_tokens == 16


def test_a_stop_token_inside_the_accepted_run_ends_the_answer() -> None:
    """The fake model goes on after a stop token: what it draws then is not the answer's."""
    n_cut = 0
    for start in range(20):
        fake = engine(6, 0)
        request = Request(prompt(5, start), stop_tokens=frozenset({2}), max_tokens=30)
        request_id = fake.submit(request)
        fake.finish()
        fake.check_idle()
        answer, reason = direct_answer(request, 0, 200)
        assert fake.answers[request_id, 0].tokens == answer
        n_cut += reason is FinishReason.STOP and len(answer) % 7 not in (0, 1)
    assert n_cut > 5


def test_what_was_rejected_is_not_found_by_anybody() -> None:
    """A draft that fills the rest of a block and the next one, all wrong."""
    fake = engine(0, 6)
    request_id = fake.submit(Request(prompt(9), max_tokens=4))
    fake.step()
    plan = fake.step()
    assert plan is not None
    [chunk] = plan.chunks
    assert len(chunk.draft) == 2, "the answer ends with its fourth token"
    fake.finish()
    answer = fake.answers[request_id, 0].tokens
    wrong, right = (*prompt(9), answer[0], *chunk.draft), (*prompt(9), *answer)
    for tokens, reused in ((wrong, 10), (right, 12)):
        other = fake.submit(Request((*tokens, 0), max_tokens=1))
        fake.finish()
        assert fake.stats(other).reused_tokens == reused
    fake.check_idle()


def test_rejected_drafts_keep_no_blocks() -> None:
    fake = engine(0, 20)
    fake.submit(Request(prompt(7), max_tokens=40))
    fake.step()
    for n_tokens in range(8, 20):
        fake.step()
        assert fake.plans[-1].n_tokens == 21
        assert fake.scheduler.stats().blocks_used == -(-n_tokens // 4)


@pytest.mark.parametrize("n_prompt", [1, 5, 11])
def test_an_answer_ends_where_the_context_is_full(n_prompt: int) -> None:
    fake = engine(9, 0, context=12)
    request_id = fake.submit(Request(prompt(n_prompt)))
    fake.finish()
    fake.check_idle()
    assert len(fake.answers[request_id, 0].tokens) == 12 - n_prompt


def test_drafts_keep_within_the_budget() -> None:
    fake = engine(9, 0, token_budget=4, max_sequences=1)
    fake.submit(Request(prompt(4), max_tokens=9))
    fake.finish()
    assert widths(fake) == [[4], [4], [4]]


def test_nobody_waits_for_a_draft() -> None:
    """As soon as a second request is there, in a batch and while its prompt is computed, steps are plain."""
    fake = engine(3, 0, token_budget=8)
    fake.submit(Request(prompt(4), max_tokens=60))
    fake.step()
    fake.step()
    fake.submit(Request(prompt(20, 100), max_tokens=5))
    for _ in range(8):
        fake.step()
    assert widths(fake) == [[4], [4], [1, 7], [1, 7], [1, 6], *([1, 1],) * 4, [4]]


def test_the_end_of_a_prompt_is_no_decode() -> None:
    for n in (1, 2):
        fake = engine(3, 0)
        fake.submit(Request(prompt(1), max_tokens=10, n=n))
        fake.finish()
        fake.check_idle()
        assert widths(fake)[0] == [1]


def test_answers_to_one_prompt_draft_when_one_is_left() -> None:
    fake = engine(3, 0)
    request_id = fake.submit(Request(prompt(4), max_tokens=10, n=2))
    fake.step()
    fake.step()
    fake.cancel(request_id, 1)
    fake.step()
    assert widths(fake) == [[4], [1, 1], [4]]
    fake.finish()
    fake.check_idle()


@pytest.mark.parametrize("n_wrong", [0, 9])
def test_drafts_evict_nothing(n_wrong: int) -> None:
    """Two engines over pools full of cached blocks: the same ones are evicted with and without drafts."""
    drafting, plain = engine(9 - n_wrong, n_wrong, n_blocks=12), FakeEngine(n_blocks=12, block_size=4, context=200)
    for fake in (drafting, plain):
        for start in (0, 60, 120, 180):
            fake.submit(Request(prompt(10, start), max_tokens=20))
            fake.finish()
        fake.check_idle()
    assert drafting.scheduler.stats().evictions == plain.scheduler.stats().evictions > 0
    assert drafting.scheduler.stats().drafted_tokens > 0


def test_a_step_that_is_cancelled_counts_for_nothing() -> None:
    fake = engine(3, 3)
    request_id = fake.submit(Request(prompt(4), max_tokens=30))
    fake.step()
    fake.step(cancel_before_complete=(request_id, None))
    assert fake.plans[-1].n_tokens == 7
    assert (fake.stats(request_id).drafted_tokens, fake.stats(request_id).generated_tokens) == (0, 1)
    fake.check_idle()
