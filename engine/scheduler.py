"""Decides what each step computes: continuous batching of prefill chunks and decodes under a token budget.

Everything follows one order, the rank: interactive before background, then first come, first served.

- Budget: every running sequence that decodes gets its one token first, so it never waits longer than one
  chunk; the rest of the budget goes to prompts, class by class: those that run, then those that wait.
- Memory: blocks are taken when tokens are about to be computed. If they run out, a sequence may preempt those
  of lower rank, last first; the last one waits with what it has. A preempted sequence keeps its tokens, leaves
  its full blocks in the prefix cache and finds them there when it is admitted again.
- Admission: only the first in line, once the pool can hold all its known tokens beside those of the running
  sequences, and not while a running sequence is computing the very block that it needs next.
- Drafts: a sequence that decodes alone may verify draft tokens, from budget and free blocks that are left over. In a
  batch, the others would wait for them at every step, and their tokens make use of the machine already.

The first sequence in rank can preempt all others and fits the pool alone (`submit` sees to it), so every step
makes progress. The caller runs the plan and samples; the scheduler never sees a tensor.
"""

from __future__ import annotations

import itertools
import time
from bisect import insort
from collections.abc import Callable, Mapping
from collections.abc import Sequence as SequenceOf

from engine.errors import MemoryLimitError
from engine.interface import Event
from engine.kv_manager import KnownPrefix, KvManager
from engine.requests import check_request
from engine.scheduler_stats import SchedulerStats
from engine.sequence import FinishReason, PrefillEvent, Priority, Request, Sequence, SequenceStatus, TokenEvent
from engine.speculation import Speculation
from engine.step_plan import Chunk, StepPlan


class Scheduler:
    """Owner of all sequences and, through KvManager, of all blocks. A plan must be completed, or dropped for good."""

    def __init__(
        self,
        kv: KvManager,
        *,
        context: int,
        token_budget: int = 512,
        max_sequences: int = 16,
        speculation: Speculation | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Schedule over the pool that `kv` manages.

        context: tokens of one sequence, prompt and answer together. token_budget: tokens of one step.
        max_sequences: sequences running at a time, at most `token_budget`.
        speculation: chooses the drafts, None is without.
        """
        if max_sequences > token_budget:
            raise ValueError("a step must have room for one token of every running sequence")
        self.kv = kv
        self.context = context
        self.token_budget = token_budget
        self.max_sequences = max_sequences
        # The last token of an answer needs no slot: nothing is computed after it.
        self.window = min(context, kv.n_blocks * kv.block_size + 1)
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self._speculation = speculation
        self._clock = clock
        self._scheduled_at = 0.0
        self._live: dict[int, list[Sequence]] = {}
        """Unfinished sequences of each request, by index."""
        self._request_ids = itertools.count(1)
        self._sequence_ids = itertools.count(1)
        self._reused = self._computed = self._recomputed = self._preemptions = self._drafted = self._accepted = 0

    def submit(self, request: Request) -> int:
        """Put a request in line and return its id.

        Raises PromptError if there is no prompt, no answer is asked for, or the prompt leaves no room for an
        answer in the context (it holds at most `context` - 1 tokens), and MemoryLimitError if the pool can never
        hold the prompt. An answer ends with LENGTH where the context, or the whole pool, is full.
        """
        check_request(request, self.context)
        excess = len(request.prompt) - (self.window - 1)
        if excess > 0:
            raise MemoryLimitError(
                f"The prompt has {len(request.prompt):,} tokens, {excess:,} more than the KV cache holds: shorten it, "
                "or give the cache more memory."
            )
        request_id = next(self._request_ids)
        now = self._clock()
        answers = [
            Sequence(next(self._sequence_ids), request_id, index, request, list(request.prompt), (), submitted_at=now)
            for index in range(request.n)
        ]
        for sequence in answers:
            self.kv.open(sequence)
            sequence.status = SequenceStatus.FORKING
        self._live[request_id] = answers
        self._wait(answers[0])
        return request_id

    def cancel(self, request_id: int, index: int | None = None, *, is_intact: bool = True) -> list[Event]:
        """End all answers of a request, or one; returns their last events. What was computed stays cached.

        If the answer that computes a shared prompt is cancelled, another one takes over. is_intact: see
        KvManager.release.
        """
        events: list[Event] = []
        for sequence in self._live.get(request_id, []).copy():
            if index in (None, sequence.index):
                events.append(self._finish(sequence, FinishReason.CANCELLED, is_intact=is_intact))
        remaining = self._live.get(request_id, [])
        if remaining and all(sequence.status is SequenceStatus.FORKING for sequence in remaining):
            self._wait(remaining[0])
        return events

    def has_work(self) -> bool:
        """Whether a sequence is running or waiting."""
        return bool(self.running or self.waiting)

    def live_sequence_ids(self) -> set[int]:
        """Ids of all sequences that have not ended."""
        return {sequence.sequence_id for answers in self._live.values() for sequence in answers}

    def schedule(self) -> StepPlan | None:
        """Plan one step, or None if there is nothing to do."""
        if not self.has_work():
            return None
        self._scheduled_at = self._clock()
        self._preempt_background()
        plan = StepPlan()
        prompt_budget = self.token_budget - sum(sequence.n_remaining == 1 for sequence in self.running)
        for priority in Priority:
            for sequence in [runner for runner in self.running if runner.request.priority is priority]:
                if sequence.status is not SequenceStatus.RUNNING:
                    continue  # preempted by one before it
                n_tokens = 1
                if sequence.n_remaining > 1:
                    n_tokens = min(sequence.n_remaining, prompt_budget)
                    prompt_budget -= n_tokens
                self._plan_chunk(plan, sequence, n_tokens)
            prompt_budget -= self._admit(plan, priority, prompt_budget)
        self._add_draft(plan)
        return plan

    def complete(self, plan: StepPlan, sampled: Mapping[int, SequenceOf[int]]) -> list[Event]:
        """Take in the results of a plan: `sampled` has the tokens of every sequence in a chunk's `samples`, by id.

        There is one token, or with a draft the accepted ones and the one after them. Sequences that were cancelled
        meanwhile are passed over.
        """
        now = self._clock()
        events: list[Event] = []
        for chunk in plan.chunks:
            sequence = chunk.sequence
            if sequence.status is not SequenceStatus.RUNNING:
                continue
            if self._speculation is not None and chunk is plan.lone_decode:
                drawn = sampled[sequence.sequence_id]
                self._speculation.observe(sequence, chunk.draft, drawn, now - self._scheduled_at)
                self._drafted += len(chunk.draft)
                sequence.n_drafted += len(chunk.draft)
                self.kv.trim(sequence, chunk.start + len(drawn))
            self._advance(sequence, chunk.n_own)
            if sequence.n_generated == 0:
                done = sequence.n_computed
                n_reused = min(sequence.n_reused, chunk.start)  # after a preemption, some may be computed again
                events.append(PrefillEvent(sequence.request_id, done, sequence.n_prompt, n_reused))
            for sibling in chunk.samples[1:]:
                if sibling.status is SequenceStatus.FORKING:
                    self._fork(sequence, sibling)
            for drawer in chunk.samples:
                if drawer.status is SequenceStatus.RUNNING:
                    events += self._extend(drawer, sampled[drawer.sequence_id], now)
        return events

    def stats(self) -> SchedulerStats:
        """State and history."""
        groups = self.kv.groups
        return SchedulerStats(
            n_running=len(self.running),
            n_waiting=len(self.waiting),
            blocks_total=sum(group.n_blocks for group in groups),
            blocks_used=self.kv.n_used,
            blocks_cached=sum(group.cache.n_evictable for group in groups),
            reused_tokens=self._reused,
            computed_tokens=self._computed,
            recomputed_tokens=self._recomputed,
            evictions=sum(group.cache.n_evicted for group in groups),
            preemptions=self._preemptions,
            drafted_tokens=self._drafted,
            accepted_tokens=self._accepted,
        )

    def check_integrity(self) -> None:
        """Assert that every sequence and every block is where it belongs; walks everything."""
        live = [sequence for answers in self._live.values() for sequence in answers]
        by_status = {status: [s for s in live if s.status is status] for status in SequenceStatus}
        assert sorted(by_status[SequenceStatus.RUNNING], key=lambda s: s.rank) == self.running
        assert sorted(by_status[SequenceStatus.WAITING], key=lambda s: s.rank) == self.waiting
        assert not by_status[SequenceStatus.FINISHED]
        assert len(self.running) <= self.max_sequences
        for answers in self._live.values():
            assert any(sequence.status is not SequenceStatus.FORKING for sequence in answers)
        for sequence in live:
            assert sequence.n_computed < len(sequence.token_ids) <= self.window
            assert sequence.status is SequenceStatus.RUNNING or not any(map(len, sequence.tables))
        self.kv.check_integrity(live)

    # --- planning: who runs, and with which memory ---

    def _plan_chunk(self, plan: StepPlan, sequence: Sequence, n_tokens: int) -> None:
        """Add up to `n_tokens` tokens of a running sequence to the plan, as many as get slots."""
        if not self.kv.has_slots(sequence, n_tokens):
            while (capacity := self.kv.capacity(sequence)) < n_tokens and self.running[-1] is not sequence:
                self._preempt(self.running[-1])  # of lower rank, so not in the plan yet
            n_tokens = min(n_tokens, capacity)
            if n_tokens > 0:
                plan.copies += self.kv.grow(sequence, n_tokens)
        if n_tokens == 0:
            return
        if sequence.n_remaining == 1:
            plan.copies += self.kv.compact(sequence)
        samples: tuple[Sequence, ...] = ()
        if n_tokens == sequence.n_remaining:
            samples = (sequence, *self._forking_from(sequence, plan))
        plan.chunks.append(Chunk(sequence, sequence.n_computed, n_tokens, samples))

    def _add_draft(self, plan: StepPlan) -> None:
        """Let a sequence that decodes alone verify draft tokens, within its answer's limits."""
        chunk = plan.lone_decode
        if self._speculation is None or chunk is None:
            return
        sequence = chunk.sequence
        n_slots = self.kv.capacity(sequence, evicting=False)
        draft = self._speculation.draft(sequence, min(self.token_budget, sequence.n_left(self.window), n_slots) - 1)
        if draft:
            n_tokens = 1 + len(draft)
            plan.copies += self.kv.grow(sequence, n_tokens)
            plan.chunks[0] = chunk._replace(n_tokens=n_tokens, draft=draft)

    def _forking_from(self, sequence: Sequence, plan: StepPlan) -> list[Sequence]:
        """The siblings that draw their first token with `sequence`; those that find no place wait in line."""
        siblings = [s for s in self._live[sequence.request_id] if s.status is SequenceStatus.FORKING]
        n_promised = sum(len(chunk.samples) - 1 for chunk in plan.chunks if chunk.samples)
        n_places = self.max_sequences - len(self.running) - n_promised
        for sibling in siblings[n_places:]:
            self._wait(sibling)
        return siblings[:n_places]

    def _admit(self, plan: StepPlan, priority: Priority, budget: int) -> int:
        """Start waiting sequences of a class, in line, while places, memory and budget last; returns tokens used."""
        left = budget
        while left > 0 and self.waiting and self.waiting[0].request.priority is priority:
            sequence = self.waiting[0]
            prefix = self.kv.lookup(sequence)
            if not self._has_room(sequence, prefix, self.running) or self._is_coming(sequence, prefix):
                break
            del self.waiting[0]
            plan.copies += self.kv.adopt(sequence, prefix)
            self._count_reuse(sequence)
            sequence.status = SequenceStatus.RUNNING
            if sequence.prefill_at is None:
                sequence.prefill_at = self._clock()
            insort(self.running, sequence, key=lambda s: s.rank)
            n_tokens = min(sequence.n_remaining, left)
            self._plan_chunk(plan, sequence, n_tokens)
            left -= n_tokens
        return budget - left

    def _has_room(self, sequence: Sequence, prefix: KnownPrefix, beside: list[Sequence], n_freed: int = 0) -> bool:
        """Whether there is a place, and memory for all known tokens, beside those of the running sequences `beside`.

        n_freed: blocks that would be given back first.
        """
        n_taken = len(beside) + sum(
            sibling.status is SequenceStatus.FORKING for runner in beside for sibling in self._live[runner.request_id]
        )
        promised = sum(self.kv.blocks_needed(runner) for runner in beside)
        n_blocks = self.kv.blocks_needed(sequence, prefix) + promised - n_freed
        return n_taken < self.max_sequences and self.kv.can_allocate(n_blocks)

    def _is_coming(self, sequence: Sequence, prefix: KnownPrefix) -> bool:
        """Whether a running sequence is about to compute the first block that `sequence` lacks."""
        if prefix.n_blocks == len(sequence.hashes):
            return False
        wanted = sequence.hashes[prefix.n_blocks]
        return any(wanted in runner.hashes[len(runner.chains[0]) :] for runner in self.running)

    def _preempt_background(self) -> None:
        """Give the first in line, if it is interactive, the place and memory of background sequences."""
        if not self.waiting or self.waiting[0].request.priority is not Priority.INTERACTIVE:
            return
        first, prefix = self.waiting[0], self.kv.lookup(self.waiting[0])
        others = [runner for runner in self.running if runner.request.priority is Priority.INTERACTIVE]
        n_freed = sum(len(runner.tables[0]) for runner in self.running[len(others) :])
        if not self._has_room(first, prefix, others, n_freed):
            return  # it would wait all the same
        while len(self.running) > len(others):
            if self._has_room(first, self.kv.lookup(first), self.running):
                return
            self._preempt(self.running[-1])

    def _preempt(self, sequence: Sequence) -> None:
        self._preemptions += 1
        self.running.remove(sequence)
        self.kv.release(sequence)
        sequence.n_computed_before = max(sequence.n_computed, sequence.n_computed_before)
        sequence.n_computed = 0
        self._wait(sequence)

    def _wait(self, sequence: Sequence) -> None:
        sequence.status = SequenceStatus.WAITING
        insort(self.waiting, sequence, key=lambda s: s.rank)

    # --- results: what a finished step changes ---

    def _count_reuse(self, sequence: Sequence) -> None:
        """Prompt tokens found in the prefix cache and not computed or found before are reused."""
        known_before = max(sequence.n_computed_before, sequence.n_reused)
        n_reused = max(0, min(sequence.n_computed, sequence.n_prompt) - known_before)
        sequence.n_reused += n_reused
        self._reused += n_reused

    def _advance(self, sequence: Sequence, n_tokens: int) -> None:
        """Count the tokens of a chunk as computed, and publish the blocks that they filled."""
        start, stop = sequence.n_computed, sequence.n_computed + n_tokens
        known_before = sequence.n_computed_before
        self._recomputed += max(0, min(stop, known_before) - start)
        self._computed += max(0, min(stop, sequence.n_prompt) - max(start, known_before))
        sequence.n_computed = stop
        self.kv.publish(sequence)

    def _fork(self, source: Sequence, sibling: Sequence) -> None:
        self.kv.fork(source, sibling)
        sibling.status = SequenceStatus.RUNNING
        sibling.prefill_at = source.prefill_at
        self._count_reuse(sibling)
        insort(self.running, sibling, key=lambda s: s.rank)

    def _extend(self, sequence: Sequence, tokens: SequenceOf[int], now: float) -> list[TokenEvent]:
        """Add drawn tokens up to the end of the answer; all but the last are accepted drafts, so computed already."""
        events = []
        for number, token in enumerate(tokens, 1):
            events.append(self._append(sequence, token, now))
            if sequence.status is SequenceStatus.FINISHED:
                break
            if number < len(tokens):
                self._advance(sequence, 1)
                sequence.n_accepted += 1
                self._accepted += 1
        return events

    def _append(self, sequence: Sequence, token: int, now: float) -> TokenEvent:
        """Add a drawn token to its sequence, and end the answer where it must end."""
        if sequence.first_token_at is None:
            sequence.first_token_at = now
        if token in sequence.request.stop_tokens:
            return self._finish(sequence, FinishReason.STOP)
        sequence.last_token_at = now
        sequence.token_ids.append(token)
        if sequence.n_left(self.window) == 0:
            return self._finish(sequence, FinishReason.LENGTH, token)
        return TokenEvent(sequence.request_id, sequence.index, token)

    def _finish(
        self, sequence: Sequence, reason: FinishReason, token: int | None = None, *, is_intact: bool = True
    ) -> TokenEvent:
        """End an answer, whatever its status; its event carries the last token if there is one."""
        stats = sequence.stats(self._blocks_of(sequence.request_id))
        if sequence.status is SequenceStatus.RUNNING:
            self.running.remove(sequence)
        elif sequence.status is SequenceStatus.WAITING:
            self.waiting.remove(sequence)
        self.kv.release(sequence, is_intact=is_intact)
        sequence.status = SequenceStatus.FINISHED
        answers = self._live[sequence.request_id]
        answers.remove(sequence)
        if not answers:
            del self._live[sequence.request_id]
        return TokenEvent(sequence.request_id, sequence.index, token, reason, stats)

    def _blocks_of(self, request_id: int) -> int:
        """Blocks that the unfinished answers of a request refer to, shared ones counted once."""
        answers = self._live[request_id]
        return sum(len({b for s in answers for b in s.tables[group]}) for group in range(len(self.kv.groups)))
