"""What is left of answers that are cancelled, and who takes their place."""

from __future__ import annotations

from engine.sequence import Request, SequenceStatus
from tests.engine.test_scheduler import cost, engine, prompt


class TestCancel:
    def test_each_answer_ends_once(self) -> None:
        scheduler = engine().scheduler
        request_id = scheduler.submit(Request(prompt(5), n=2))
        assert len(scheduler.cancel(request_id)) == 2
        assert scheduler.cancel(request_id) == []
        assert scheduler.cancel(99) == []
        assert not scheduler.has_work()

    def test_what_was_computed_stays_cached(self) -> None:
        fake = engine(token_budget=10)
        request_id = fake.submit(Request(prompt(40)))
        fake.step()
        fake.step()
        fake.cancel(request_id)
        fake.check_idle()
        assert cost(fake, request_id) == (40, 0, 20, 0)
        again = fake.submit(Request(prompt(40), max_tokens=1))
        fake.finish()
        assert cost(fake, again)[:3] == (40, 20, 20)

    def test_a_sibling_takes_over_the_prompt(self) -> None:
        fake = engine(token_budget=10)
        request_id = fake.submit(Request(prompt(40), max_tokens=5, n=3))
        fake.step()
        fake.cancel(request_id, 0)
        assert [s.index for s in fake.scheduler.waiting] == [1]
        fake.finish()
        fake.check_idle()
        assert cost(fake, request_id, 1)[:3] == (40, 10, 30)
        assert cost(fake, request_id, 2)[:3] == (40, 40, 0)

    def test_answers_beyond_the_places_wait_and_find_the_prompt(self) -> None:
        fake = engine(max_sequences=2)
        request_id = fake.submit(Request(prompt(10), max_tokens=5, n=4))
        fake.step()
        assert [s.index for s in fake.scheduler.running] == [0, 1]
        assert [(s.index, s.status) for s in fake.scheduler.waiting] == [
            (2, SequenceStatus.WAITING),
            (3, SequenceStatus.WAITING),
        ]
        fake.finish()
        fake.check_idle()
        assert cost(fake, request_id, 3)[:3] == (10, 9, 1)

    def test_answers_that_fork_in_one_step_share_the_places(self) -> None:
        fake = engine(max_sequences=3)
        first, second = (fake.submit(Request(prompt(5, 20 * i), max_tokens=3, n=2)) for i in range(2))
        fake.step()
        fake.check()
        assert [(s.request_id, s.index) for s in fake.scheduler.running] == [(first, 0), (first, 1), (second, 0)]
        fake.finish()
        fake.check_idle()
