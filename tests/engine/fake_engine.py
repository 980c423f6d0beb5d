"""A scheduler driven without a model: a pool that remembers what was written, and a next token computed from it.

Each slot holds (token, position, digest of the history before it). A sequence is read back through its block
table, so that whatever the scheduler confuses (a block, an order, a copy) shows as a wrong history.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any, NamedTuple

from engine.blocks import BlockCopy
from engine.interface import Event
from engine.kv_manager import KvManager
from engine.scheduler import Scheduler
from engine.sequence import FinishReason, PrefillEvent, Request, Sequence, SequenceStats, SequenceStatus, TokenEvent
from engine.step_plan import StepPlan

VOCABULARY = 3


def digest(history: list[int]) -> bytes:
    return hashlib.sha256(bytes(history)).digest()


def next_token(history: list[int], index: int) -> int:
    """The fake model and its sampler: each of the n answers (`index`) draws its own token from the same history."""
    return digest([*history, 255, index])[0] % VOCABULARY


def direct_answer(request: Request, index: int, window: int) -> tuple[list[int], FinishReason]:
    """What the fake model answers when nothing is scheduled, shared or preempted."""
    history = list(request.prompt)
    answer: list[int] = []
    while True:
        token = next_token(history, index)
        if token in request.stop_tokens:
            return answer, FinishReason.STOP
        history.append(token)
        answer.append(token)
        if len(history) == window or len(answer) == request.max_tokens:
            return answer, FinishReason.LENGTH


class Slot(NamedTuple):
    token: int
    position: int
    before: bytes


class FakePool:
    """Slots of one KV group."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.slots: dict[int, Slot] = {}

    def copy(self, source: int, target: int, n_blocks: int) -> None:
        for i in range(n_blocks * self.block_size):
            slot = self.slots.get(source * self.block_size + i)
            if slot is not None:
                self.slots[target * self.block_size + i] = slot


class Guesses:
    """Stands in for Speculation: drafts of any length, right for a while, as chance (a digest of the history) has it.

    Looks at the room that is left when a draft is asked for.
    """

    def __init__(self) -> None:
        self.kv: KvManager | None = None
        self.n_evicted = 0
        self.draft_given: tuple[int, ...] = ()

    def draft(self, sequence: Sequence, limit: int) -> tuple[int, ...]:
        assert self.kv is not None
        assert sequence.n_remaining == 1
        for group, table in zip(self.kv.groups, sequence.tables, strict=True):
            n_free_slots = (len(table) + group.n_free) * self.kv.block_size - sequence.n_computed
            assert 0 <= limit < n_free_slots, "a draft would evict"
        self.n_evicted = sum(group.cache.n_evicted for group in self.kv.groups)
        chance = digest(sequence.token_ids)
        history = list(sequence.token_ids)
        for i in range(min(limit, chance[0] % 7)):
            right = next_token(history, sequence.index)
            history.append(right if i < chance[1] % 7 else (right + 1) % VOCABULARY)
        self.draft_given = tuple(history[len(sequence.token_ids) :])
        return self.draft_given

    def observe(self, sequence: Sequence, draft: tuple[int, ...], drawn: list[int], seconds: float) -> None:
        assert sequence.n_remaining == 1
        assert draft == self.draft_given
        assert 1 <= len(drawn) <= 1 + len(draft)
        assert tuple(drawn[:-1]) == draft[: len(drawn) - 1]
        assert seconds == 1


class Answer(NamedTuple):
    tokens: list[int]
    ends: list[tuple[FinishReason, SequenceStats]]


class FakeEngine:
    """Runs plans against fake pools, and checks on the way what must hold for every plan."""

    def __init__(self, *, guesses: Guesses | None = None, **options: Any) -> None:
        names = {"context", "token_budget", "max_sequences"} & options.keys()
        of_scheduler = {name: options.pop(name) for name in names}
        self.kv = KvManager(**options)
        speculation: Any = guesses
        self.scheduler = Scheduler(
            self.kv, **of_scheduler, speculation=speculation, clock=lambda: float(len(self.plans))
        )
        self.guesses = guesses
        if guesses is not None:
            guesses.kv = self.kv
        self.pools = [FakePool(self.kv.block_size) for _ in self.kv.groups]
        self.answers: dict[tuple[int, int], Answer] = defaultdict(lambda: Answer([], []))
        self.requests: dict[int, Request] = {}
        self.prefill_events: list[PrefillEvent] = []
        self.plans: list[StepPlan] = []
        self.recomputed = 0
        self._furthest: dict[int, int] = defaultdict(int)
        """The most tokens that each sequence ever had in the pool."""

    def submit(self, request: Request) -> int:
        request_id = self.scheduler.submit(request)
        self.requests[request_id] = request
        return request_id

    def cancel(self, request_id: int, index: int | None = None) -> None:
        self._receive(self.scheduler.cancel(request_id, index))

    def step(self, cancel_before_complete: tuple[int, int | None] | None = None) -> StepPlan | None:
        line = self.scheduler.waiting.copy()
        plan = self.scheduler.schedule()
        if plan is None:
            return None
        self.plans.append(plan)
        self._check_plan(plan, line)
        sampled = self._run(plan)
        if cancel_before_complete is not None:
            self.cancel(*cancel_before_complete)
        self._count(plan)
        self._receive(self.scheduler.complete(plan, sampled))
        for sequence in self.scheduler.running:
            self._furthest[sequence.sequence_id] = max(self._furthest[sequence.sequence_id], sequence.n_computed)
        return plan

    def _count(self, plan: StepPlan) -> None:
        for sequence, start, n_tokens, *_ in plan.chunks:
            if sequence.status is SequenceStatus.RUNNING:
                self.recomputed += max(0, min(start + n_tokens, self._furthest[sequence.sequence_id]) - start)

    def finish(self, limit: int = 2000) -> None:
        for _ in range(limit):
            if self.step() is None:
                return
        raise AssertionError("no end in sight")

    def answer(self, request: Request) -> list[int]:
        """Run a request to its end, alone."""
        request_id = self.submit(request)
        self.finish()
        return self.answers[request_id, 0].tokens

    def stats(self, request_id: int, index: int = 0) -> SequenceStats:
        [(_, stats)] = self.answers[request_id, index].ends
        return stats

    def history(self, sequence: Sequence, n_tokens: int) -> list[int]:
        """Read the first tokens of a sequence back from the pools; each slot must belong to this very history."""
        for pool, table in zip(self.pools, sequence.tables, strict=True):
            history: list[int] = []
            for position, slot in enumerate(table.slot_mapping(0, n_tokens)):
                token, written_position, before = pool.slots[int(slot)]
                assert (written_position, before) == (position, digest(history))
                history.append(token)
            assert history == sequence.token_ids[:n_tokens]
        return sequence.token_ids[:n_tokens]

    def check(self) -> None:
        """The integrity of the scheduler, and the read-back oracle for every live sequence."""
        self.scheduler.check_integrity()
        for sequence in self.scheduler.running:
            self.history(sequence, sequence.n_computed)
            for table in sequence.tables:
                assert len(table) == -(-sequence.n_computed // self.kv.block_size), "a block without tokens"

    def check_idle(self) -> None:
        """Nothing leaked, every answer ended once and is the model's own."""
        self.check()
        stats = self.scheduler.stats()
        assert (stats.blocks_used, stats.n_running, stats.n_waiting) == (0, 0, 0)
        assert stats.recomputed_tokens == self.recomputed
        costs = [cost for answer in self.answers.values() for _, cost in answer.ends]
        assert stats.reused_tokens == sum(cost.reused_tokens for cost in costs)
        assert stats.computed_tokens == sum(cost.computed_tokens for cost in costs)
        assert stats.drafted_tokens == sum(cost.drafted_tokens for cost in costs)
        assert stats.accepted_tokens == sum(cost.accepted_tokens for cost in costs)
        assert all(cost.accepted_tokens <= min(cost.drafted_tokens, cost.generated_tokens) for cost in costs)
        for request_id, request in self.requests.items():
            for index in range(request.n):
                tokens, ends = self.answers[request_id, index]
                [(reason, cost)] = ends
                expected, expected_reason = direct_answer(request, index, self.scheduler.window)
                assert cost.generated_tokens == len(tokens)
                if reason is FinishReason.CANCELLED:
                    assert tokens == expected[: len(tokens)]
                else:
                    assert (tokens, reason) == (expected, expected_reason)
                    assert cost.reused_tokens + cost.computed_tokens == cost.prompt_tokens == len(request.prompt)
                    assert cost.computed_tokens >= (index == 0 and request.n == 1)

    def _check_plan(self, plan: StepPlan, line: list[Sequence]) -> None:
        """Budget and progress; one chunk a sequence; no decode left out that has a slot; nobody overtaken in `line`."""
        assert 0 < plan.n_tokens <= self.scheduler.token_budget
        planned = [chunk.sequence for chunk in plan.chunks]
        assert len(set(planned)) == len(planned)
        for sequence in self.scheduler.running:
            if sequence not in planned and sequence.n_remaining == 1:
                assert self.kv.capacity(sequence) == 0
        assert all(chunk.n_tokens > 0 for chunk in plan.chunks)
        for chunk in plan.chunks:
            if chunk.draft:
                assert self.guesses is not None
                assert len(plan.chunks) == 1, "a draft beside another sequence"
                assert chunk.n_tokens <= chunk.sequence.n_left(self.scheduler.window)
                assert self.guesses.n_evicted == sum(group.cache.n_evicted for group in self.kv.groups)
        admitted = [s for s in line if s.status is SequenceStatus.RUNNING]
        assert all(s.rank < other.rank for s in admitted for other in self.scheduler.waiting), "overtaken in line"

    def _run(self, plan: StepPlan) -> dict[int, list[int]]:
        for copy in plan.copies:
            self._check_copy(copy)
            self.pools[copy.group].copy(copy.source, copy.target, copy.n_blocks)
        for i, pool in enumerate(self.pools):
            group = self.kv.groups[i]
            written: set[int] = set()
            for sequence, start, n_tokens, _, draft in plan.chunks:
                assert start == sequence.n_computed
                tokens = [*sequence.token_ids, *draft]
                slots = [int(slot) for slot in sequence.tables[i].slot_mapping(start, start + n_tokens)]
                assert len(slots) == len(set(slots)) == n_tokens
                assert written.isdisjoint(slots)
                written.update(slots)
                for position, slot in enumerate(slots, start):
                    block = slot // pool.block_size
                    assert group.ref_count(block) == 1, "a shared block is written"
                    assert not group.cache.is_published(block), "a published block is written"
                    pool.slots[slot] = Slot(tokens[position], position, digest(tokens[:position]))
        sampled: dict[int, list[int]] = {}
        for chunk in plan.chunks:
            history = self.history(chunk.sequence, chunk.start + chunk.n_own)
            for drawer in chunk.samples:
                assert drawer.token_ids == history
                assert drawer.sequence_id not in sampled
                sampled[drawer.sequence_id] = self._verify(history, chunk.draft, drawer.index)
        return sampled

    def _verify(self, history: list[int], draft: tuple[int, ...], index: int) -> list[int]:
        """What is drawn as long as the draft is right: a stop token does not keep this model from going on."""
        drawn = [next_token(history, index)]
        for drafted in draft:
            if drawn[-1] != drafted:
                break
            drawn.append(next_token([*history, *drawn], index))
        return drawn

    def _check_copy(self, copy: BlockCopy) -> None:
        """A copy overwrites nothing that anybody can read, not even itself."""
        group, size = self.kv.groups[copy.group], copy.n_blocks
        assert not max(copy.source, copy.target) - min(copy.source, copy.target) < size, "source and target overlap"
        for block in range(copy.target, copy.target + size):
            assert group.ref_count(block) <= 1, "a shared block is overwritten"
            assert not group.cache.is_published(block), "a published block is overwritten"

    def _receive(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, PrefillEvent):
                assert 0 <= event.reused < event.done <= event.total
                self.prefill_events.append(event)
                continue
            assert isinstance(event, TokenEvent)
            answer = self.answers[event.request_id, event.index]
            assert not answer.ends, "an event after the end"
            if event.token_id is not None:
                answer.tokens.append(event.token_id)
            assert (event.finish is None) == (event.stats is None)
            if event.finish is not None and event.stats is not None:
                answer.ends.append((event.finish, event.stats))
