"""PagedEngine: requests in, events out, over the scheduler, the KV pool and the forward graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from engine.attention_choice import AttentionChoice
from engine.blocks import BLOCK_SIZE
from engine.compaction import CompactionPolicy
from engine.config import EngineConfig
from engine.devices import Device, find_device
from engine.errors import OctavoError, StepFailed
from engine.forward import Forward
from engine.gguf_file import GgufFile
from engine.interface import Event
from engine.interrupt import StepInterrupted
from engine.kv_manager import KvManager
from engine.kv_pool import KvLayout, KvPool, bytes_per_slot
from engine.memory import available_memory, choose_context
from engine.plan import ModelPlan
from engine.sampling import Sampler, check_sampling
from engine.scheduler import Scheduler
from engine.scheduler_stats import SchedulerStats
from engine.sequence import KvStats, Request, Sequence, TokenEvent
from engine.speculation import Speculation, verify
from engine.step_batch import in_reading_order, make_batch
from engine.step_plan import StepPlan
from engine.survey import PoolSurvey, SurveyedSequence, survey_blocks
from engine.tuner import Tuner
from engine.weights import Weights, prefers_copy

_POOL_CONTEXTS = 4
"""Full contexts that the pool has room for, where memory that is not written costs nothing."""

_MAX_SEQUENCES = 16
"""Sequences computed at a time; more only make each slower."""

_LOADED = 0.95
"""Fraction of the loading progress that belongs to the weights; the rest is the pool and the device."""

_LOADED_TO_MEASURE = 0.5
"""The same when settings are measured afterwards."""


class PagedEngine:
    """The Engine interface over a paged KV cache: many sequences share one pool, block by block."""

    name = "paged"

    def __init__(
        self,
        path: str,
        config: EngineConfig,
        progress: Callable[[float], None],
        *,
        layout: KvLayout | None = None,
        n_blocks: int | None = None,
        token_budget: int | None = None,
        speculate: bool = True,
        choice: AttentionChoice | None = None,
    ) -> None:
        """Load the model file at `path`; `progress` receives the fraction that is done, from 0 to 1.

        layout: of the pool, None is the device's. n_blocks: of the pool, None follows memory and context.
        token_budget: most tokens of one step. speculate: verify draft tokens where that is faster.
        choice: of attention on the CPU. Where it, the budget and the threads are None, engine/tuner.py chooses.
        Raises ModelFileError, UnsupportedModel, UnsupportedKvType, MemoryLimitError or DeviceError.
        """
        file = GgufFile.open(path)
        self._plan = plan = ModelPlan.from_gguf(file)
        device = find_device(config.device)
        layout = layout or (KvLayout.PACKED if device.kind == "cpu" else KvLayout.ROWS)
        token_bytes = bytes_per_slot(plan.kv_groups, layout.types(config.kv_type)) + _gathered_bytes(plan)
        available = _memory_for_kv(file, device)
        self.context_train = plan.context_train
        self.context = choose_context(config.context, plan.context_train, token_bytes, available)
        n_blocks = n_blocks or _pool_blocks(self.context, token_bytes, available, device)
        tuner = Tuner(file, plan, device, layout, config)
        loaded = _LOADED_TO_MEASURE if tuner.measures else _LOADED
        with contextlib.ExitStack() as stack:
            weights = stack.enter_context(
                contextlib.closing(
                    Weights(
                        file,
                        plan,
                        device,
                        lambda done: progress(done * loaded),
                        copied=prefers_copy(file, device, available),
                    )
                )
            )
            tuning = tuner.tune(weights, lambda done: progress(loaded + done * (_LOADED - loaded)))
            self.tuning_report = tuner.report
            token_budget = token_budget or tuning.chunk_tokens
            max_sequences = min(_MAX_SEQUENCES, token_budget)
            self._pool = stack.enter_context(
                contextlib.closing(KvPool(plan.kv_groups, n_blocks, BLOCK_SIZE, layout, device, config.kv_type))
            )
            self._forward = stack.enter_context(
                contextlib.closing(
                    Forward(
                        plan,
                        weights,
                        self._pool,
                        device,
                        n_threads=tuning.threads,
                        max_sequences=max_sequences,
                        max_tokens=token_budget,
                        choice=choice or tuning.attention,
                    )
                )
            )
            self._native = stack.pop_all()
        self._reading = layout.reading
        self._scheduler = Scheduler(
            KvManager(
                n_blocks=n_blocks,
                n_groups=len(plan.kv_groups),
                compaction=CompactionPolicy(self._reading),
                commit_step=self._pool.commit_step,
            ),
            context=self.context,
            token_budget=token_budget,
            max_sequences=max_sequences,
            speculation=Speculation() if speculate else None,
        )
        self._samplers: dict[int, Sampler] = {}
        """By sequence id, from an answer's first token to its last."""
        progress(1.0)

    def submit(self, request: Request) -> int:
        """Queue a request and return its id.

        Raises PromptError when the prompt is empty or too long, or a sampling setting has no meaning.
        """
        check_sampling(request.sampling)
        return self._scheduler.submit(request)

    def step(self) -> list[Event]:
        """Compute one batch of prefill chunks and decodes; returns what it produced, nothing if it was interrupted.

        Raises StepFailed when the device fails or the output is not a number.
        """
        plan = self._scheduler.schedule()
        if plan is None:
            return []
        try:
            sampled = self._run(plan)
        except StepInterrupted:  # the sequences keep their slots, and nobody has read what stands in them
            return []
        except OctavoError as error:
            failed = frozenset(chunk.sequence.request_id for chunk in plan.chunks)
            for request_id in failed:
                self._closing_samplers(self._scheduler.cancel(request_id, is_intact=False))
            raise StepFailed(error, failed) from error
        return self._closing_samplers(self._scheduler.complete(plan, sampled))

    def interrupt(self) -> None:
        """See Engine.interrupt."""
        self._forward.interrupt.set()

    def cancel(self, request_id: int, index: int | None = None) -> list[Event]:
        """End all answers of a request, or one of them; what was computed stays in the cache."""
        return self._closing_samplers(self._scheduler.cancel(request_id, index))

    def has_work(self) -> bool:
        """Whether a request is running or waiting."""
        return self._scheduler.has_work()

    def kv_stats(self) -> KvStats:
        """KV memory now."""
        stats = self._scheduler.stats()
        block_bytes = BLOCK_SIZE * self._pool.bytes_per_slot
        return KvStats(
            block_size=BLOCK_SIZE,
            block_bytes=block_bytes,
            blocks_total=stats.blocks_total,
            blocks_used=stats.blocks_used,
            blocks_cached=stats.blocks_cached,
            bytes_used=stats.blocks_used * block_bytes,
            bytes_resident=self._pool.bytes_resident(),
            bytes_contiguous_would_reserve=self.context * self._pool.bytes_per_slot,
            type_k=self._pool.types.k,
            type_v=self._pool.types.v,
        )

    def survey(self) -> PoolSurvey:
        """KV memory now, block by block."""
        running = self._scheduler.running
        states, owners = survey_blocks(self._scheduler.kv, running)
        sequences = [
            SurveyedSequence(s.request.owner, s.n_computed, len(s.tables[0]), s.tables[0].n_runs) for s in running
        ]
        n_cached = self._scheduler.kv.n_cached_tokens
        return PoolSurvey(self.kv_stats(), self._scheduler.stats(), states, owners, tuple(sequences), n_cached)

    def scheduler_stats(self) -> SchedulerStats:
        """Counters of the scheduler since the start."""
        return self._scheduler.stats()

    def close(self) -> None:
        """Free native memory; the engine must not be used afterwards."""
        for sampler in self._samplers.values():
            sampler.close()
        self._native.close()

    def _run(self, plan: StepPlan) -> dict[int, list[int]]:
        """Compute a plan; returns the tokens that each sampling sequence drew, by sequence id."""
        self._forward.copy_blocks(plan.copies)
        chunks = in_reading_order(plan.chunks)
        batch = make_batch(
            chunks,
            len(self._plan.kv_groups),
            self._reading,
            shares_prefixes=self._pool.layout is KvLayout.PACKED,
        )
        try:
            logits = self._forward.run(batch)
        finally:
            self._forward.interrupt.clear()
        sampled: dict[int, list[int]] = {}
        first_row = 0
        for chunk in chunks:
            if chunk.samples:
                assert logits is not None
                rows = logits[first_row : first_row + 1 + len(chunk.draft)]
                first_row += len(rows)
                for sequence in chunk.samples:
                    draws = (self._sample(sequence, row) for row in rows)
                    sampled[sequence.sequence_id] = verify(chunk.draft, draws, sequence.request.stop_tokens)
        return sampled

    def _sample(self, sequence: Sequence, logits: NDArray[np.float32]) -> int:
        sampler = self._samplers.get(sequence.sequence_id)
        if sampler is None:
            sampler = Sampler(
                sequence.request.sampling,
                self._plan.vocabulary,
                index=sequence.index,
                history=sequence.token_ids,
            )
            self._samplers[sequence.sequence_id] = sampler
        return sampler.sample(logits)

    def _closing_samplers(self, events: list[Event]) -> list[Event]:
        """Pass events on, and free the samplers of the answers that they end."""
        if any(isinstance(event, TokenEvent) and event.finish is not None for event in events):
            for sequence_id in self._samplers.keys() - self._scheduler.live_sequence_ids():
                self._samplers.pop(sequence_id).close()
        return events


def _memory_for_kv(file: GgufFile, device: Device) -> int:
    """Bytes left for the KV cache beside the weights; a device that does not tell is taken to share our memory."""
    free = available_memory() if device.kind == "cpu" or not device.memory_total else device.memory_free
    return max(0, free - file.n_bytes)


def _gathered_bytes(plan: ModelPlan) -> int:
    """Bytes per token for which a long chunk's attention gathers keys and values as F32, one layer after another."""
    return max(4 * group.n_head_kv * (group.head_dim_k + group.head_dim_v) for group in plan.kv_groups)


def _pool_blocks(context: int, token_bytes: int, available: int, device: Device) -> int:
    """Blocks of the pool: one full context, and on the CPU, where only what is written takes memory, a few more."""
    n_tokens = context
    if device.kind == "cpu":
        n_tokens = max(context, min(_POOL_CONTEXTS * context, available // 2 // token_bytes))
    return -(-n_tokens // BLOCK_SIZE)
