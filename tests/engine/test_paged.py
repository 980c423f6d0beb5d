"""What PagedEngine tells about memory and time, and that it leaves nothing behind."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import DeviceError, MemoryLimitError, PromptError, StepFailed
from engine.paged import PagedEngine
from engine.sequence import FinishReason, Request, SamplingParams, SequenceStats, TokenEvent

GREEDY = SamplingParams(temperature=0)


def load(path: Path, context: int | None = None, **options: int) -> PagedEngine:
    return PagedEngine(
        str(path), EngineConfig(context=context, threads=1, device="CPU"), lambda _fraction: None, **options
    )


def finish(engine: PagedEngine) -> dict[tuple[int, int], tuple[FinishReason, SequenceStats]]:
    """Run to the end; how each answer ended."""
    ends = {}
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, TokenEvent) and event.finish and event.stats:
                ends[event.request_id, event.index] = event.finish, event.stats
    return ends


def test_each_request_reports_its_own_blocks(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model())
    long = engine.submit(Request(tuple(range(80)), GREEDY, max_tokens=20))
    short = engine.submit(Request((5, 6, 7), GREEDY, max_tokens=20))
    ends = finish(engine)
    assert ends[long, 0][1].blocks_used == math.ceil((80 + 19) / 16)
    assert ends[short, 0][1].blocks_used == math.ceil((3 + 19) / 16)
    assert engine.kv_stats().blocks_used == 0
    engine.close()


def test_answers_to_one_prompt_store_it_once(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model())
    request = engine.submit(Request(tuple(range(70)), GREEDY, max_tokens=20, n=3))
    ends = finish(engine)
    shared, own = 70 // 16, math.ceil((70 + 19) / 16) - 70 // 16
    assert ends[request, 0][1].blocks_used == shared + 3 * own
    assert [ends[request, i][1].computed_tokens for i in range(3)] == [70, 0, 0]
    assert [ends[request, i][1].reused_tokens for i in range(3)] == [0, 70, 70]
    engine.close()


def test_memory_is_taken_by_use(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model(context=65536), context=65536)
    reserved = engine.kv_stats().bytes_contiguous_would_reserve
    assert reserved == 65536 * engine.kv_stats().block_bytes // 16
    assert engine.kv_stats().bytes_resident == 0
    engine.submit(Request(tuple(range(90)), GREEDY, max_tokens=30))
    finish(engine)
    assert engine.kv_stats().blocks_cached == math.ceil((90 + 29) / 16)
    assert 0 < engine.kv_stats().bytes_resident < reserved / 10
    engine.close()


@pytest.mark.parametrize("n_prompt", [254, 255])
def test_an_answer_ends_where_the_context_is_full(tiny_model: Callable[..., Path], n_prompt: int) -> None:
    engine = load(tiny_model())
    request = engine.submit(Request(tuple(i % 90 for i in range(n_prompt)), GREEDY))
    [(reason, stats)] = finish(engine).values()
    assert (reason, stats.generated_tokens) == (FinishReason.LENGTH, 256 - n_prompt)
    assert request == 1
    engine.close()


def test_a_prompt_without_room_for_an_answer_is_refused(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model())
    with pytest.raises(PromptError, match=r"256 tokens, 1 more"):
        engine.submit(Request(tuple(i % 90 for i in range(256)), GREEDY))
    assert not engine.has_work()
    engine.close()


def test_a_context_larger_than_memory_says_what_fits(tiny_model: Callable[..., Path]) -> None:
    with pytest.raises(MemoryLimitError, match=r"--context \d+ or less"):
        load(tiny_model(), context=2**40)


def test_an_output_that_is_no_number_ends_its_answers(tiny_model: Callable[..., Path]) -> None:
    import numpy as np

    broken = np.full(64, np.nan)
    engine = load(tiny_model(tensors={"output_norm.weight": broken}))
    engine.submit(Request((1, 2, 3), GREEDY))
    with pytest.raises(StepFailed, match="not a number"):
        engine.step()
    assert not engine.has_work()
    assert engine.kv_stats().blocks_used == 0
    engine.close()


def test_a_failed_step_leaves_full_blocks_only(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows what the last block holds: it may just have been moved."""

    def fail(_copies: object) -> None:
        raise DeviceError("It is broken.")

    engine = load(tiny_model())
    engine.submit(Request(tuple(range(20)), GREEDY, max_tokens=9))
    engine.step()
    engine.step()
    with monkeypatch.context() as patched:
        patched.setattr(engine._forward, "copy_blocks", fail)
        with pytest.raises(StepFailed, match="broken"):
            engine.step()
    assert engine.survey().tokens_cached == 16
    request_id = engine.submit(Request(tuple(range(20)), GREEDY, max_tokens=9))
    assert finish(engine)[request_id, 0][1].reused_tokens == 16
    assert engine.survey().tokens_cached == 20 + 8
    engine.close()


def test_cancelling_in_the_middle_of_a_prompt_keeps_its_blocks(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model(context=512), token_budget=64)
    prompt = tuple(i % 90 for i in range(400))
    request = engine.submit(Request(prompt, GREEDY, max_tokens=1))
    engine.step()
    engine.step()
    [event] = engine.cancel(request)
    assert isinstance(event, TokenEvent)
    assert event.finish is FinishReason.CANCELLED
    engine.submit(Request(prompt, GREEDY, max_tokens=1))
    [(_, stats)] = finish(engine).values()
    assert (stats.reused_tokens, stats.computed_tokens) == (128, 272)
    engine.close()
