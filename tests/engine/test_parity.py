"""The paged engine's logits against llama_decode's, on tiny models of every kind and on the starter model.

A prompt in one chunk repeats llama.cpp's operations one by one, without flash attention if it is short and with it if
it is long, so it is identical. Decodes multiply in another order; their distance is bounded by that between
llama.cpp's own two settings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import step_batch
from engine.attention_choice import NEVER, AttentionChoice
from engine.batch import Batch
from engine.forward import Forward
from engine.kv_pool import KvLayout
from tests.engine.recording import RecordingEngine
from tests.reference import F16, LlamaDecode

VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, every head its own KV": {"heads_kv": 4},
    "llama, one KV head": {"heads_kv": 1},
    "llama, tied": {"tied": True},
    "llama, biases": {"qkv_bias": True, "o_bias": True, "ffn_bias": True},
    "llama, rope factors": {"rope_factors": True},
    "llama, linear rope": {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "llama, wide heads": {"head_dim": 32},
    "llama, F16": {"weight_type": "F16"},
    "llama, Q8_0": {"weight_type": "Q8_0", "ff": 128},
    "llama, Q4_0": {"weight_type": "Q4_0", "ff": 128, "tied": True},
    "llama, Q4_K": {"weight_type": "Q4_K", "embedding": 256, "ff": 256, "heads": 8, "heads_kv": 2},
    "llama, Q6_K": {"weight_type": "Q6_K", "embedding": 256, "ff": 256},
    "llama, projections of two types": {
        "tensors": {"blk.1.attn_k.weight": np.random.default_rng(1).normal(0, 0.25, (32, 64)).astype(np.float16)}
    },
    "qwen2": {"architecture": "qwen2"},
    "qwen2, tied": {"architecture": "qwen2", "tied": True},
    "qwen2, yarn": {
        "architecture": "qwen2",
        "keys": {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 64,
        },
    },
    "qwen3": {"architecture": "qwen3"},
    "qwen3, wide heads": {"architecture": "qwen3", "head_dim": 32},
    "qwen3, Q8_0": {"architecture": "qwen3", "weight_type": "Q8_0", "ff": 128},
}

PROMPT = [(7 * i * i + 3 * i) % 90 for i in range(40)]
N_GREEDY = 64

SAME_SUM = 1e-5
"""Normalised mean square error allowed where only the order of additions differs (F16 keys, values, probabilities)."""


def nmse(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean((actual - expected) ** 2) / np.mean(expected**2))


def assert_close(actual: np.ndarray, expected: np.ndarray, bound: float) -> None:
    """Near in the mean, and the same choice wherever the best two are further apart than the rows are."""
    assert nmse(actual, expected) <= bound
    for row, oracle in zip(actual, expected, strict=True):
        second, first = np.sort(oracle)[-2:]
        if first - second > 2 * np.abs(row - oracle).max():
            assert row.argmax() == oracle.argmax()


@contextmanager
def engine(path: Path, **options: Any) -> Iterator[RecordingEngine]:
    paged = RecordingEngine(path, **options)
    try:
        yield paged
    finally:
        paged.close()


def oracle(path: Path, prompt: list[int], n_tokens: int, *, flash: bool = False, n_ctx: int = 256) -> np.ndarray:
    """Logits of a greedy answer, the prompt's last row first: [n_tokens, vocabulary]."""
    with LlamaDecode(path, kv_type=F16, flash=flash, extra_bufts=True, n_ctx=n_ctx) as reference:
        rows = [reference.decode(prompt, last_only=True)[0]]
        for position in range(len(prompt), len(prompt) + n_tokens - 1):
            rows.append(reference.decode([int(rows[-1].argmax())], position)[0])
    return np.stack(rows)


def choices(rows: np.ndarray) -> list[int]:
    return [int(token) for token in rows.argmax(axis=1)]


def forced(path: Path, prompt: list[int], answer: list[int], *, flash: bool, n_ctx: int = 256) -> np.ndarray:
    """llama_decode's logits along a given answer."""
    with LlamaDecode(path, kv_type=F16, flash=flash, extra_bufts=True, n_ctx=n_ctx) as reference:
        rows = [reference.decode(prompt, last_only=True)[0]]
        rows += [reference.decode([token], len(prompt) + i)[0] for i, token in enumerate(answer[:-1])]
    return np.stack(rows)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_prefill_is_identical_and_decode_close(tiny_model: Callable[..., Path], options: dict[str, Any]) -> None:
    path = tiny_model(**options)
    expected = oracle(path, PROMPT, N_GREEDY)
    other_setting = forced(path, PROMPT, choices(expected), flash=True)
    with engine(path) as paged:
        request = paged.follow(PROMPT, choices(expected))
        paged.run()
        rows = paged.logits(request)
    assert np.array_equal(rows[0], expected[0])
    assert_close(rows[1:], expected[1:], max(SAME_SUM, 2 * nmse(other_setting[1:], expected[1:])))


@pytest.mark.parametrize("options", [VARIANTS["llama"], VARIANTS["qwen3, Q8_0"]], ids=["llama", "qwen3, Q8_0"])
def test_flash_composition_equals_flash_attention(tiny_model: Callable[..., Path], options: dict[str, Any]) -> None:
    path = tiny_model(**options)
    expected = oracle(path, PROMPT, N_GREEDY, flash=True)
    with engine(path, layout=KvLayout.ROWS) as paged:
        request = paged.follow(PROMPT, choices(expected))
        paged.run()
        assert_close(paged.logits(request), expected, 1e-9)


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("seed", range(5))
def test_chunks_and_blocks_do_not_matter(tiny_model: Callable[..., Path], seed: int, layout: KvLayout) -> None:
    """Chunks of random sizes, across all compositions, over a pool of which a random half of the blocks is taken."""
    chance = random.Random(seed)
    path = tiny_model(context=512)
    prompt = [(5 * i * i + i) % 90 for i in range(300)]
    expected = oracle(path, prompt, 24, n_ctx=512)
    other_setting = forced(path, prompt, choices(expected), flash=True, n_ctx=512)
    with engine(path, n_blocks=64, layout=layout, context=400) as paged:
        allocator = paged._scheduler.kv.groups[0]
        blocks = allocator.allocate(64)
        for block in chance.sample(blocks, 32):
            allocator.release(block)
        request = paged.follow(prompt, choices(expected))
        while paged.has_work():
            paged._scheduler.token_budget = chance.choice([1, 5, 15, 16, 17, 63, 64, 100])
            paged.step()
        bound = max(SAME_SUM, 2 * nmse(other_setting, expected))
        assert_close(paged.logits(request), expected, bound)


@pytest.mark.parametrize("layout", KvLayout)
def test_eight_sequences_in_one_batch(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    path = tiny_model()
    prompts = [[(3 * i * i + 11 * number + i) % 90 for i in range(5 + 9 * number)] for number in range(8)]
    expected = [oracle(path, prompt, 24) for prompt in prompts]
    with engine(path, token_budget=64, layout=layout) as paged:
        requests = [paged.follow(p, choices(rows)) for p, rows in zip(prompts, expected, strict=True)]
        paged.run()
        for request, rows in zip(requests, expected, strict=True):
            assert_close(paged.logits(request), rows, SAME_SUM)


@pytest.mark.parametrize("layout", KvLayout)
def test_after_preemption(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    """Four answers that need 5 blocks each in a pool of 9: some must give way and be computed again."""
    path = tiny_model()
    prompts = [[(3 * i * i + 11 * number) % 90 for i in range(20)] for number in range(4)]
    expected = [oracle(path, prompt, 50) for prompt in prompts]
    with engine(path, n_blocks=9, layout=layout) as paged:
        requests = [paged.follow(p, choices(rows)) for p, rows in zip(prompts, expected, strict=True)]
        paged.run()
        assert paged.scheduler_stats().preemptions > 0
        for request, rows in zip(requests, expected, strict=True):
            assert_close(paged.logits(request), rows, SAME_SUM)


@pytest.mark.parametrize("layout", KvLayout)
def test_answers_that_fork_share_their_prompt(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    path = tiny_model()
    expected = oracle(path, PROMPT, 30)
    with engine(path, layout=layout) as paged:
        request = paged.follow(PROMPT, choices(expected), n=3)
        paged.run()
        for index in range(3):
            assert_close(paged.logits(request, index), expected, SAME_SUM)


@pytest.mark.parametrize("shared_columns", [1, 10**9], ids=["cascade", "one by one"])
def test_different_answers_to_one_prompt(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, shared_columns: int
) -> None:
    """Forks that go their own ways, and a stranger between two pairs: what is shared is read once, the rest is not."""
    monkeypatch.setattr(step_batch, "SHARED_COLUMNS", shared_columns)
    path = tiny_model(context=512, heads=4, heads_kv=2)
    prompt = [(5 * i * i + i) % 90 for i in range(150)]
    stranger = [(7 * i * i + 3 * i + 1) % 90 for i in range(40)]
    answers = [[(number * i * i + 5 * i + number) % 90 for i in range(70)] for number in range(5)]
    groups: list[tuple[int, ...]] = []
    run = Forward.run

    def noting(self: Forward, batch: Batch) -> Any:
        groups.extend(dict.fromkeys(s.shared.members for s in batch.groups[0] if s.shared is not None))
        return run(self, batch)

    monkeypatch.setattr(Forward, "run", noting)
    with engine(path, context=300, n_blocks=100) as paged:
        requests = [paged.follow(prompt, answers[0]), paged.follow(prompt, answers[1])]
        paged.step()
        paged.step()
        requests += [
            paged.follow(stranger, answers[2]),
            paged.follow(prompt, answers[3]),
            paged.follow(prompt, answers[4]),
        ]
        paged.run()
        logits = [paged.logits(request) for request in requests]
    for rows, answer, start in zip(logits, answers, (prompt, prompt, stranger, prompt, prompt), strict=True):
        expected = forced(path, start, answer, flash=False, n_ctx=512)
        bound = max(SAME_SUM, 2 * nmse(forced(path, start, answer, flash=True, n_ctx=512), expected))
        assert_close(rows, expected, bound)
    assert bool(groups) == (shared_columns == 1)
    if groups:
        assert max(map(len, groups)) >= 2


@pytest.mark.parametrize("layout", KvLayout)
def test_scattered_blocks(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    """A pool whose free blocks are every second one: each block of the sequence is a run of its own."""
    path = tiny_model(context=1024)
    prompt = [(5 * i * i + i) % 90 for i in range(200)]
    expected = oracle(path, prompt, 40, n_ctx=512)
    with engine(path, n_blocks=32, layout=layout, context=512) as paged:
        allocator = paged._scheduler.kv.groups[0]
        blocks = allocator.allocate(32)
        assert blocks == list(range(32))
        for block in blocks[::2]:
            allocator.release(block)
        request = paged.follow(prompt, choices(expected))
        paged.run()
        assert_close(paged.logits(request), expected, SAME_SUM)


@pytest.mark.parametrize("layout", KvLayout)
def test_moving_a_scattered_sequence_changes_nothing(tiny_model: Callable[..., Path], layout: KvLayout) -> None:
    """Every block a run of its own while the prompt is computed; then there is room, and the answer begins in one."""
    path = tiny_model(context=1024)
    prompt = [(5 * i * i + i) % 90 for i in range(200)]
    expected = oracle(path, prompt, 40, n_ctx=512)
    with engine(path, n_blocks=64, layout=layout, context=512) as paged:
        allocator = paged._scheduler.kv.groups[0]
        blocks = allocator.allocate(64)
        for block in blocks[::2]:
            allocator.release(block)
        request = paged.follow(prompt, choices(expected))
        paged.step()
        for block in blocks[1::2]:
            allocator.release(block)
        [sequence] = paged._scheduler.running
        assert sequence.tables[0].n_runs == 13
        paged.step()
        assert sequence.tables[0].n_runs == 1
        paged.run()
        assert_close(paged.logits(request), expected, SAME_SUM)


def test_reused_prefix_gives_the_same_answer(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model()
    with engine(path) as paged:
        cold = paged.greedy(PROMPT, 40)
        paged.run()
        history = [*PROMPT, *paged.drawn[cold, 0]]
        warm = paged.greedy(history[:70], 10)
        paged.run()
        assert paged.drawn[warm, 0] == history[70:]
        assert paged.scheduler_stats().reused_tokens == 69


@pytest.mark.parametrize("n_prompt", [64, 100, 150])
def test_long_chunks_are_identical_to_flash_attention(tiny_model: Callable[..., Path], n_prompt: int) -> None:
    path = tiny_model()
    prompt = [(5 * i * i + i) % 90 for i in range(n_prompt)]
    expected = oracle(path, prompt, 1, flash=True)
    with engine(path) as paged:
        request = paged.follow(prompt, choices(expected))
        paged.run()
        assert np.array_equal(paged.logits(request), expected)


@pytest.mark.parametrize("n_prompt", [64, 100, 150, 300])
def test_packed_long_chunks_are_identical_to_no_flash_attention(tiny_model: Callable[..., Path], n_prompt: int) -> None:
    """Where flash attention is not chosen."""
    path = tiny_model(context=512)
    prompt = [(5 * i * i + i) % 90 for i in range(n_prompt)]
    expected = oracle(path, prompt, 1, n_ctx=512)
    with engine(path, context=512, choice=AttentionChoice(flash=False)) as paged:
        request = paged.follow(prompt, choices(expected))
        paged.run()
        assert np.array_equal(paged.logits(request), expected)


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("ahead_columns", [0, 128, NEVER])
@pytest.mark.parametrize("unpacked_columns", [0, 128, NEVER])
def test_every_choice_gives_the_same_logits(
    tiny_model: Callable[..., Path], unpacked_columns: int, ahead_columns: int, flash: bool
) -> None:
    """A prompt in two chunks, and decodes on both sides of the sizes at which the composition changes."""
    path = tiny_model(layers=3, context=512)
    prompt = [(5 * i * i + i) % 90 for i in range(112)]
    expected = oracle(path, prompt, 40)
    other_setting = forced(path, prompt, choices(expected), flash=True)
    choice = AttentionChoice(unpacked_columns, ahead_columns, flash)
    with engine(path, token_budget=80, choice=choice) as paged:
        request = paged.follow(prompt, choices(expected))
        paged.run()
        assert_close(paged.logits(request), expected, max(SAME_SUM, 2 * nmse(other_setting, expected)))


@pytest.mark.parametrize("flash", [True, False])
def test_starter_model_with_any_choice(starter_path: Path, flash: bool) -> None:
    prompt = [1, 4093, 198, 2683, 359, 260, 6376, 4461, 47, 2, 198, 1, 520, 9531, 198] * 8
    expected = oracle(starter_path, prompt, 16, flash=flash)
    other_setting = forced(starter_path, prompt, choices(expected), flash=not flash)
    for unpacked_columns, ahead_columns in ((0, 0), (NEVER, NEVER)):
        choice = AttentionChoice(unpacked_columns, ahead_columns, flash)
        with engine(starter_path, choice=choice) as paged:
            request = paged.follow(prompt, choices(expected))
            paged.run()
            rows = paged.logits(request)
        assert np.array_equal(rows[0], expected[0])
        assert_close(rows[1:], expected[1:], 2 * nmse(other_setting[1:], expected[1:]))


def test_starter_model(starter_path: Path) -> None:
    prompt = [1, 4093, 198, 2683, 359, 260, 6376, 4461, 47, 2, 198, 1, 520, 9531, 198] * 8
    expected = oracle(starter_path, prompt, N_GREEDY, flash=True)
    other_setting = forced(starter_path, prompt, choices(expected), flash=False)
    with engine(starter_path) as paged:
        request = paged.follow(prompt, choices(expected))
        paged.run()
        rows = paged.logits(request)
    assert np.array_equal(rows[0], expected[0])
    assert_close(rows[1:], expected[1:], 2 * nmse(other_setting[1:], expected[1:]))


def test_oracle_sees_a_difference(tiny_model: Callable[..., Path]) -> None:
    """The bounds above are far below what one wrong token does."""
    path = tiny_model()
    for first, second in pairwise([oracle(path, prompt, 1) for prompt in (PROMPT, [*PROMPT[:5], 0, *PROMPT[6:]])]):
        assert nmse(first, second) > 100 * SAME_SUM
