"""States of other prompts, kept in RAM and restored: on real models, against an engine that knows nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig, KvType
from engine.contiguous import ContiguousEngine
from engine.llama_context import LlamaContext
from engine.prompt_states import common_length
from engine.sequence import Request, SamplingParams, SequenceStats
from tests.engine.test_llama_context import mamba

CONFIG = EngineConfig(context=2048, threads=1, device="cpu", state_cache_bytes=2**30)
GREEDY = SamplingParams(temperature=0)
STATE_BYTES_PER_TOKEN = 2 * 2 * (16 + 16) * 2 + 12
"""Of a tiny llama: K and V of two heads in two layers, F16, and what llama.cpp writes about a token."""
N_TOKENS = 6
TinyModel = Callable[..., Path]
Load = Callable[..., ContiguousEngine]


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[ContiguousEngine] = []

    def make(path: Path, config: EngineConfig = CONFIG, flash: bool | None = False) -> ContiguousEngine:
        engines.append(ContiguousEngine(str(path), config, lambda _: None, flash=flash))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def ask(engine: ContiguousEngine, prompt: list[int]) -> tuple[list[int], SequenceStats]:
    engine.submit(Request(tuple(prompt), GREEDY, N_TOKENS))
    tokens: list[int] = []
    while True:
        for event in engine.step():
            token = getattr(event, "token_id", None)
            tokens += [] if token is None else [token]
            stats = getattr(event, "stats", None)
            if stats is not None:
                return tokens, stats


def reused(engine: ContiguousEngine, prompts: list[list[int]]) -> list[int]:
    return [ask(engine, prompt)[1].reused_tokens for prompt in prompts]


def text(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 96, n).tolist()


def chats(system: int = 40) -> tuple[list[int], list[int]]:
    """Two prompts that begin alike, with less than half of either in common."""
    return [*text(system), *text(60, seed=1)], [*text(system), *text(70, seed=2)]


def test_a_chat_comes_back_whole(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    with_states, without = load(path), load(path, replace(CONFIG, state_cache_bytes=0))
    a, b = chats()
    assert reused(without, [a, b, a, b]) == [0, 40, 40, 40]
    assert reused(with_states, [a, b, a, b]) == [0, 40, len(a) - 1, len(b) - 1]


def test_what_is_restored_gives_the_same_tokens_as_a_cold_run(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path)
    a, b = chats()
    for prompt in (a, b, a, [*b, *text(9, seed=3)], a[:30], b, [*a, *text(9, seed=4)]):
        assert ask(engine, prompt)[0] == ask(load(path), prompt)[0]


@pytest.mark.parametrize(("flash", "kv_type"), [(True, KvType.F16), (True, KvType.Q8_0), (False, KvType.Q8_0)])
def test_states_hold_what_the_cache_holds(load: Load, tiny_model: TinyModel, flash: bool, kv_type: KvType) -> None:
    path = tiny_model(head_dim=32)
    config = replace(CONFIG, kv_type=kv_type)
    engine = load(path, config, flash)
    a, b = chats()
    first = ask(engine, a)[0]
    ask(engine, b)
    again, stats = ask(engine, a)
    assert (again, stats.reused_tokens) == (first, len(a) - 1)


def test_the_starter_model_says_the_same_after_a_switch(load: Load, starter_path: Path) -> None:
    engine = load(starter_path, replace(CONFIG, context=512))
    a, b = [[520 + seed, *range(4093, 4153)] for seed in range(2)]
    first = ask(engine, a)[0]
    ask(engine, b)
    again, stats = ask(engine, [*a, *first])
    assert stats.reused_tokens == len(a) + N_TOKENS - 1
    assert again == ask(load(starter_path, replace(CONFIG, context=512)), [*a, *first])[0]


def test_a_regenerated_answer_saves_nothing(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    a, _ = chats()
    assert reused(engine, [a, a, [*a, 1, 2, 3], a]) == [0, len(a) - 1, len(a), len(a) - 1]
    assert engine.kv_stats().bytes_resident == engine.kv_stats().bytes_contiguous_would_reserve


def test_a_state_that_a_longer_one_begins_with_is_dropped(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    a, b = chats()
    longer = [*a, *text(50, seed=5)]
    reused(engine, [a, b])
    assert saved_tokens(engine) == len(a) + N_TOKENS - 1
    engine.submit(Request(tuple(longer), GREEDY, N_TOKENS))
    while engine.has_work():
        engine.step()  # a's state is restored, and continued in the cache
    assert saved_tokens(engine) == len(b) + N_TOKENS - 1
    reused(engine, [b])
    assert saved_tokens(engine) == len(longer) + N_TOKENS - 1


def test_a_prompt_that_is_contained_in_a_state_is_not_saved_again(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    a, b = chats(system=10)
    reused(engine, [a, b])
    before = saved_tokens(engine)
    reused(engine, [a[:10]])  # the beginning of both: neither would keep a quarter
    assert saved_tokens(engine) == before + len(b) + N_TOKENS - 1
    assert ask(engine, text(30, seed=9))[1].reused_tokens == 0
    assert saved_tokens(engine) == before + len(b) + 2 * N_TOKENS + 10 - 2


def saved_tokens(engine: ContiguousEngine) -> int:
    return engine.kv_stats().blocks_total - engine.context


def test_the_limit_holds_and_the_oldest_state_goes(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    prompts = [text(100, seed=seed) for seed in range(5)]
    limit = 3 * 105 * STATE_BYTES_PER_TOKEN + 300
    engine = load(path, replace(CONFIG, state_cache_bytes=limit))
    window = engine.kv_stats().bytes_resident
    for prompt in prompts:
        ask(engine, prompt)
        assert 0 <= engine.kv_stats().bytes_resident - window <= limit
    assert saved_tokens(engine) == 3 * 105
    assert reused(engine, [prompts[2], prompts[0]]) == [99, 0]  # prompts[1] made room for the cache of prompts[4]


def test_a_state_beyond_the_limit_is_not_saved(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model(), replace(CONFIG, state_cache_bytes=100 * STATE_BYTES_PER_TOKEN))
    small, large = text(60), text(200, seed=1)
    assert reused(engine, [small, large, small, large]) == [0, 0, 59, 0]
    assert saved_tokens(engine) == 65


def test_states_count_as_resident_cached_and_reserved(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    a, b = chats()
    empty = engine.kv_stats()
    reused(engine, [a, b])
    kv = engine.kv_stats()
    n_a, n_b = len(a) + N_TOKENS - 1, len(b) + N_TOKENS - 1
    assert kv.blocks_total - empty.blocks_total == n_a
    assert (kv.blocks_used, kv.blocks_cached) == (0, n_a + n_b)
    assert kv.bytes_contiguous_would_reserve == empty.bytes_resident
    in_states = kv.bytes_resident - empty.bytes_resident
    assert n_a * kv.block_bytes < in_states < n_a * STATE_BYTES_PER_TOKEN + 300


def windowed(tiny_model: TinyModel) -> Path:
    return tiny_model(
        "cohere2",
        layers=4,
        tied=True,
        context=2048,
        keys={"attention.sliding_window": 64, "attention.layer_norm_epsilon": 1e-5, "logit_scale": 1.0},
        tensors={f"blk.{layer}.ffn_norm.weight": None for layer in range(4)},
    )


def recurrent(tiny_model: TinyModel) -> Path:
    return tiny_model("mamba", heads=0, heads_kv=0, head_dim=1, **mamba(layers=2, embedding=64))


@pytest.mark.parametrize("model", [windowed, recurrent])
def test_a_model_that_cannot_step_back_goes_on_where_its_chat_was_left(
    load: Load, tiny_model: TinyModel, model: Callable[[TinyModel], Path]
) -> None:
    path = model(tiny_model)
    engine = load(path)
    a, b = text(600, seed=1), text(700, seed=2)
    answer_a, answer_b = ask(engine, a)[0], ask(engine, b)[0]
    next_a, next_b = [*a, *answer_a, *text(5, seed=6)], [*b, *answer_b, *text(5, seed=7)]
    edited_a = [*a[:300], *text(5, seed=8)]
    for prompt, n_reused in ((next_a, len(a) + N_TOKENS - 1), (next_b, len(b) + N_TOKENS - 1), (edited_a, 0)):
        tokens, stats = ask(engine, prompt)
        assert stats.reused_tokens == n_reused
        assert tokens == ask(load(path), prompt)[0]


def test_a_state_that_llama_cpp_refuses_leaves_an_empty_cache(tiny_model: TinyModel) -> None:
    context = LlamaContext(str(tiny_model()), CONFIG, lambda _: None, flash=False)
    try:
        expected = context.decode(text(20)).copy()
        state = np.empty(context.state_bytes(), np.uint8)
        context.save_state(state)
        state[8:12] = 255  # how many streams the cache has
        context.restore_state(state, text(20))
        assert context.held == []
        np.testing.assert_array_equal(context.decode(text(20)), expected)
    finally:
        context.close()


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_common_length(a: list[int], b: list[int]) -> None:
    n = common_length(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]
