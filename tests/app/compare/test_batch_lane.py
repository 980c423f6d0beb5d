"""Batches, measured in real processes on tiny models; what is computed is checked against an independent loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.compare.batch_engines import LlamaCppBatch, PagedBatch, random_ids
from app.compare.batch_lane import ProcessBatchVariant, contiguous_variants, paged_variants, window_for
from app.compare.lanes import BatchTest, BatchVariant, RequestStopped, Started
from engine.config import EngineConfig, KvType
from engine.errors import EngineDied, MemoryLimitError, ModelFileError
from engine.llama_batch import LlamaBatch
from tests.reference import F16, LlamaDecode

CONFIG = EngineConfig(threads=1, device="cpu")
TESTS = (BatchTest(1, 32, 6), BatchTest(4, 32, 6))
TinyModel = Callable[..., Path]
Variants = Callable[[Path], list[BatchVariant]]


@pytest.fixture
def variants() -> Iterator[Variants]:
    made: list[BatchVariant] = []

    def make(path: Path) -> list[BatchVariant]:
        made.extend([*paged_variants(path, CONFIG, TESTS), *contiguous_variants(path, CONFIG, TESTS)])
        return made

    yield make
    for variant in made:
        variant.close()


def never() -> bool:
    return False


def expected(path: Path, sequence: int, depth: int, n: int) -> list[int]:
    tokens: list[int] = []
    with LlamaDecode(path, n_ctx=512, kv_type=F16) as oracle:
        prompt = [*random_ids(sequence, depth + 1, 96)]
        logits = oracle.decode(prompt)
        for position in range(len(prompt), len(prompt) + n):
            tokens.append(int(np.argmax(logits[-1])))
            logits = oracle.decode(tokens[-1:], start=position)
    return tokens


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("flash", [True, False])
def test_llama_cpp_computes_each_sequence_as_if_it_were_alone(
    tiny_model: TinyModel, unified: bool, flash: bool
) -> None:
    path = tiny_model()
    config = replace(CONFIG, context=window_for(TESTS), flash=flash)
    batch = LlamaBatch(str(path), config, lambda _: None, n_sequences=4, unified=unified)
    try:
        prompts = [random_ids(i, 33, 96) for i in range(4)]
        states = [batch.compute(i, prompt[:-1]) for i, prompt in enumerate(prompts)]
        for n in (4, 2, 4):  # what was there before makes no difference
            batch.forget()
            for i in range(n):
                batch.restore(i, states[i])
            batch.start([prompt[-1] for prompt in prompts[:n]], 32)
            steps = [batch.step() for _ in range(6)]
            assert [list(tokens) for tokens in zip(*steps, strict=True)] == [expected(path, i, 32, 6) for i in range(n)]
    finally:
        batch.close()
        batch.close()


def test_a_long_beginning_is_computed_in_chunks(tiny_model: TinyModel) -> None:
    path = tiny_model(context=2048)
    batch = LlamaBatch(str(path), replace(CONFIG, context=2048), lambda _: None, n_sequences=1, unified=True)
    try:
        prompt = random_ids(0, 1101, 96)
        batch.restore(0, batch.compute(0, prompt[:-1]))
        batch.start(prompt[-1:], 1100)
        with LlamaDecode(path, n_ctx=2048, kv_type=F16) as oracle:
            assert batch.step() == [int(np.argmax(oracle.decode([*prompt])[-1]))]
    finally:
        batch.close()


def test_a_state_without_room_is_an_error_for_people(tiny_model: TinyModel) -> None:
    batch = LlamaBatch(str(tiny_model()), replace(CONFIG, context=256), lambda _: None, n_sequences=2, unified=True)
    try:
        state = batch.compute(0, random_ids(0, 200, 96))
        batch.restore(0, state)
        with pytest.raises(MemoryLimitError, match="no room for sequence 2"):
            batch.restore(1, state)
        batch.start([1], 200)
        for _ in range(56):
            batch.step()
        with pytest.raises(MemoryLimitError, match="could not compute a batch of 1 tokens"):
            batch.step()
    finally:
        batch.close()


def test_every_sequence_gets_its_tokens(tiny_model: TinyModel) -> None:
    """The paged engine is asked what it computed; llama.cpp is counted by its positions."""
    path = str(tiny_model())
    config = replace(CONFIG, context=window_for(TESTS))
    paged, llama = (
        PagedBatch(path, config, lambda _: None),
        LlamaCppBatch(path, config, lambda _: None, n_sequences=4, unified=True),
    )
    try:
        for test in (*TESTS, BatchTest(2, 0, 3), TESTS[1]):
            paged.begin(test)
            assert paged._engine.kv_stats().blocks_used == test.n_sequences * (test.depth // 16 + 1)
            paged.finish()
            llama.begin(test)
            llama.finish()
            batch = llama._llama._batch
            assert list(batch.pos[: test.n_sequences]) == [test.depth + 1 + test.n_tokens] * test.n_sequences
    finally:
        paged.close()
        llama.close()


def test_a_pool_that_is_too_small_is_not_measured(tiny_model: TinyModel) -> None:
    paged = PagedBatch(str(tiny_model()), replace(CONFIG, context=64), lambda _: None)
    try:
        paged.begin(BatchTest(8, 48, 6))
        with pytest.raises(MemoryLimitError, match=r"does not hold 8 sequences of 54 tokens"):
            paged.finish()
    finally:
        paged.close()


def test_all_ways_are_measured_in_processes_of_their_own(tiny_model: TinyModel, variants: Variants) -> None:
    made = variants(tiny_model())
    assert [variant.name for variant in made] == [
        "",
        *("unified, flash on", "unified, flash off", "split, flash on", "split, flash off"),
    ]
    for variant in made:
        fractions: list[float] = []
        started = variant.start(fractions.append)
        assert started == Started("contiguous" if variant.name else "paged", 4 * 256)
        assert fractions[-1] == 1.0
        start = time.monotonic()
        seconds = [variant.decode(test, never) for test in (*TESTS, *TESTS)]
        assert all(second > 0 for second in seconds)
        assert sum(seconds) < time.monotonic() - start


def test_a_stopped_test_ends_and_the_next_one_runs(tiny_model: TinyModel) -> None:
    tests = [BatchTest(2, 0, 200_000), BatchTest(2, 16, 4)]
    [variant] = contiguous_variants(tiny_model(), CONFIG, tests)[:1]
    try:
        variant.start(lambda _: None)
        with pytest.raises(RequestStopped):
            variant.decode(tests[0], lambda: True)
        assert variant.decode(tests[1], never) > 0
    finally:
        variant.close()
        variant.close()


def test_closing_from_elsewhere_ends_a_test(tiny_model: TinyModel) -> None:
    [variant] = contiguous_variants(tiny_model(), CONFIG, [BatchTest(2, 0, 200_000)])[:1]
    variant.start(lambda _: None)
    threading.Timer(0.1, variant.close).start()
    with pytest.raises(EngineDied, match="was closed"):
        variant.decode(BatchTest(2, 0, 200_000), never)


def test_a_process_that_dies_is_told(tiny_model: TinyModel) -> None:
    [variant] = paged_variants(tiny_model(), CONFIG, TESTS)
    try:
        variant.start(lambda _: None)
        assert isinstance(variant, ProcessBatchVariant)
        assert variant._process is not None
        variant._process._process.kill()
        with pytest.raises(EngineDied, match="was ended by SIGKILL"):
            variant.decode(TESTS[0], never)
    finally:
        variant.close()


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    for [variant, *_] in (paged_variants(tmp_path / "no", CONFIG, TESTS), contiguous_variants(tmp_path, CONFIG, TESTS)):
        with pytest.raises(ModelFileError):
            variant.start(lambda _: None)
        variant.close()


def test_the_starter_model_in_batches(starter_path: Path) -> None:
    [paged] = paged_variants(starter_path, CONFIG, TESTS)
    [split] = [v for v in contiguous_variants(starter_path, CONFIG, TESTS) if v.name == "split, flash on"]
    for variant in (paged, split):
        try:
            variant.start(lambda _: None)
            assert all(variant.decode(test, never) > 0 for test in TESTS)
        finally:
            variant.close()


def test_quantized_keys_are_measured_too(tiny_model: TinyModel) -> None:
    path = tiny_model(head_dim=32)
    for variant in contiguous_variants(path, replace(CONFIG, kv_type=KvType.Q8_0), TESTS):
        try:
            variant.start(lambda _: None)
            assert variant.decode(TESTS[1], never) > 0
        finally:
            variant.close()
