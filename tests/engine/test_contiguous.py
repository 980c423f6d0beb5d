"""The contiguous engine against an independent llama_decode loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.errors import PromptError, StepFailed
from engine.gguf_file import GgufFile
from engine.interface import Event
from engine.kv_types import KvTypes
from engine.llama_context import CHUNK, kv_bytes_per_token
from engine.sequence import FinishReason, PrefillEvent, Priority, Request, SamplingParams, SequenceStats, TokenEvent
from tests.reference import F16, LlamaDecode

GREEDY = SamplingParams(temperature=0)
VOCAB = 96
TinyModel = Callable[..., Path]
Load = Callable[..., ContiguousEngine]


@pytest.fixture
def load() -> Iterator[Load]:
    engines: list[ContiguousEngine] = []

    def make(path: Path, context: int | None = None) -> ContiguousEngine:
        config = EngineConfig(context=context, threads=1, device="cpu")
        engines.append(ContiguousEngine(str(path), config, lambda _: None, flash=False))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def run(engine: ContiguousEngine) -> list[Event]:
    events: list[Event] = []
    while engine.has_work():
        events += engine.step()
    return events


class Answer:
    """What one answer's events say; fails unless there is exactly one terminal event, the last."""

    def __init__(self, events: list[TokenEvent]) -> None:
        self.tokens = [event.token_id for event in events if event.token_id is not None]
        assert [event for event in events if event.finish is not None] == events[-1:]
        assert events[-1].stats is not None
        self.finish = events[-1].finish
        self.stats: SequenceStats = events[-1].stats
        assert self.stats.reused_tokens + self.stats.computed_tokens <= self.stats.prompt_tokens
        assert self.stats.generated_tokens == len(self.tokens)


def answers(events: list[Event]) -> dict[tuple[int, int], Answer]:
    by_answer: dict[tuple[int, int], list[TokenEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, TokenEvent):
            by_answer[event.request_id, event.index].append(event)
    return {key: Answer(token_events) for key, token_events in by_answer.items()}


def ask(engine: ContiguousEngine, prompt: list[int], max_tokens: int = 8) -> Answer:
    request_id = engine.submit(Request(tuple(prompt), GREEDY, max_tokens))
    return answers(run(engine))[request_id, 0]


def expected(path: Path, prompt: list[int], n: int, n_ctx: int = 2048, extra_bufts: bool = False) -> list[int]:
    tokens: list[int] = []
    with LlamaDecode(path, n_ctx=n_ctx, kv_type=F16, extra_bufts=extra_bufts) as oracle:
        logits = oracle.decode(prompt)
        for position in range(len(prompt), len(prompt) + n):
            tokens.append(int(np.argmax(logits[-1])))
            logits = oracle.decode(tokens[-1:], start=position)
    return tokens


def random_prompt(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, n).tolist()


def test_greedy_tokens_of_a_real_model(load: Load, starter_path: Path) -> None:
    prompt = [1, 4093, 198, 5195, 314, 260, 6376, 4461, 47, 2, 198, 1, 520, 9531, 198]
    progress: list[float] = []
    engine = ContiguousEngine(str(starter_path), EngineConfig(context=512, threads=1), progress.append, flash=False)
    try:
        answer = ask(engine, prompt, 24)
    finally:
        engine.close()
    assert answer.tokens == expected(starter_path, prompt, 24, n_ctx=512, extra_bufts=True)
    assert answer.finish == FinishReason.LENGTH
    assert answer.stats.computed_tokens == len(prompt)
    assert 0 < answer.stats.prefill_s <= answer.stats.ttft_s
    assert answer.stats.decode_s > 0
    assert progress == sorted(progress)
    assert progress[-1] == 1


def test_a_long_prompt_is_computed_in_chunks(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path, 2048)
    prompt = random_prompt(2 * CHUNK + 100)
    request_id = engine.submit(Request(tuple(prompt), GREEDY, 8))
    events = run(engine)
    assert [event for event in events if isinstance(event, PrefillEvent)] == [
        PrefillEvent(request_id, done, len(prompt), 0) for done in (CHUNK, 2 * CHUNK, len(prompt))
    ]
    assert answers(events)[request_id, 0].tokens == expected(path, prompt, 8)


def test_the_next_turn_reuses_all_that_the_cache_holds(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path)
    first = ask(engine, random_prompt(30), 10)
    second_prompt = [*random_prompt(30), *first.tokens, *random_prompt(7, seed=1)]
    second = ask(engine, second_prompt)
    assert second.stats.reused_tokens == 30 + 10 - 1  # the last token of an answer was never fed
    assert second.stats.computed_tokens == 1 + 7
    assert second.tokens == expected(path, second_prompt, 8)


def test_one_token_is_always_computed(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    first, again = ask(engine, random_prompt(30)), ask(engine, random_prompt(30))
    assert (again.stats.reused_tokens, again.stats.computed_tokens) == (29, 1)
    assert again.tokens == first.tokens


def test_another_chat_takes_the_cache_away(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path)
    common = random_prompt(20)
    a, b = [*common, *random_prompt(30, seed=1)], [*common, *random_prompt(40, seed=2)]
    results = [ask(engine, prompt) for prompt in (a, b, a)]
    assert [result.stats.reused_tokens for result in results] == [0, 20, 20]
    assert results[0].tokens == results[2].tokens == expected(path, a, 8)
    assert results[1].tokens == expected(path, b, 8)


def test_a_prefill_can_be_cancelled_and_its_finished_part_is_reused(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path, 2048)
    prompt = random_prompt(2 * CHUNK + 100)
    request_id = engine.submit(Request(tuple(prompt), GREEDY, 8))
    engine.step()
    cancelled = answers(engine.cancel(request_id))[request_id, 0]
    assert cancelled.finish == FinishReason.CANCELLED
    assert (cancelled.stats.computed_tokens, cancelled.tokens) == (CHUNK, [])
    assert not engine.has_work()
    assert engine.cancel(request_id) == []
    again = ask(engine, prompt)
    assert again.stats.reused_tokens == CHUNK
    assert again.tokens == expected(path, prompt, 8)


def test_several_answers_come_one_after_the_other_from_one_prompt(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    request_id = engine.submit(Request(tuple(random_prompt(30)), GREEDY, 5, n=3))
    found = answers(run(engine))
    assert list(found) == [(request_id, 0), (request_id, 1), (request_id, 2)]
    assert [answer.stats.reused_tokens for answer in found.values()] == [0, 29, 29]
    assert len({tuple(answer.tokens) for answer in found.values()}) == 1


def test_several_sampled_answers_differ_and_a_seed_repeats_them(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    request = Request(tuple(random_prompt(30)), SamplingParams(temperature=2, top_k=0, seed=7), 12, n=2)
    texts = []
    for _ in range(2):
        request_id = engine.submit(request)
        found = answers(run(engine))
        texts += [found[request_id, 0].tokens, found[request_id, 1].tokens]
    assert texts[:2] == texts[2:]
    assert texts[0] != texts[1]


def test_one_of_several_answers_can_be_cancelled(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    request_id = engine.submit(Request(tuple(random_prompt(30)), GREEDY, 5, n=3))
    events = [*engine.step(), *engine.cancel(request_id, 1), *run(engine)]
    found = answers(events)
    assert {index: answer.finish for (_, index), answer in found.items()} == {
        0: FinishReason.LENGTH,
        1: FinishReason.CANCELLED,
        2: FinishReason.LENGTH,
    }
    assert found[request_id, 1].stats.ttft_s == 0


def test_interactive_requests_go_first(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    background = [
        engine.submit(Request(tuple(random_prompt(9)), GREEDY, 3, priority=Priority.BACKGROUND)) for _ in range(2)
    ]
    engine.step()
    interactive = [engine.submit(Request(tuple(random_prompt(9)), GREEDY, 3)) for _ in range(2)]
    ended = [event.request_id for event in run(engine) if isinstance(event, TokenEvent) and event.finish]
    assert ended == [background[0], *interactive, background[1]]


def test_a_stop_token_ends_the_answer_and_is_not_emitted(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    tokens = ask(engine, random_prompt(30), 12).tokens
    stop = next(token for token in tokens[2:] if token not in tokens[:2])
    request_id = engine.submit(Request(tuple(random_prompt(30)), GREEDY, 12, stop_tokens=frozenset([stop])))
    answer = answers(run(engine))[request_id, 0]
    assert answer.finish == FinishReason.STOP
    assert answer.tokens == tokens[: tokens.index(stop)]


def test_a_prompt_of_the_windows_length(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model(), 100)
    assert engine.context == 100
    last = ask(engine, random_prompt(99), 50)
    assert (len(last.tokens), last.finish) == (1, FinishReason.LENGTH)
    for n, words in ((100, "100 tokens, 1 more"), (101, "101 tokens, 2 more")):
        with pytest.raises(PromptError, match=words):
            engine.submit(Request(tuple(random_prompt(n)), GREEDY))
    with pytest.raises(PromptError, match="empty"):
        engine.submit(Request((), GREEDY))
    with pytest.raises(PromptError, match="top_p"):
        engine.submit(Request((1,), SamplingParams(top_p=2)))
    with pytest.raises(PromptError, match="at least one"):
        engine.submit(Request((1,), GREEDY, max_tokens=0))
    assert not engine.has_work()


def test_an_answer_ends_where_the_window_ends(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    answer = ask(load(path, 100), random_prompt(60), 1000)
    assert answer.finish == FinishReason.LENGTH
    assert answer.tokens == expected(path, random_prompt(60), 40, n_ctx=256)


def test_memory_in_use_follows_the_running_sequence(load: Load, tiny_model: TinyModel) -> None:
    path = tiny_model()
    engine = load(path)
    engine.submit(Request(tuple(random_prompt(30)), GREEDY, 5))
    engine.step()
    running = engine.kv_stats()
    assert (running.block_size, running.blocks_total, running.blocks_used, running.blocks_cached) == (1, 256, 30, 0)
    assert running.bytes_used == 30 * kv_bytes_per_token(GgufFile.open(path), KvTypes()) == 30 * 2 * 2 * (16 + 16) * 2
    run(engine)
    ended = engine.kv_stats()
    assert (ended.blocks_used, ended.blocks_cached, ended.bytes_used) == (0, 34, 0)


def test_after_an_output_that_is_no_number_the_next_request_runs(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model(tensors={"output_norm.weight": np.full(64, np.nan)}))
    for _ in range(2):
        engine.submit(Request((1, 2, 3), GREEDY, 3))
        with pytest.raises(StepFailed, match="not a number"):
            engine.step()
        assert not engine.has_work()


def test_closing_twice_is_harmless(load: Load, tiny_model: TinyModel) -> None:
    engine = load(tiny_model())
    engine.submit(Request(tuple(random_prompt(9)), GREEDY, 3))
    engine.step()
    engine.close()
    engine.close()
    assert not engine.has_work()
