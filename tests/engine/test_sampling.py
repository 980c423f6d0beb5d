"""The sampler against probabilities computed with numpy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError, PromptError
from engine.sampling import PENALTY_WINDOW, Sampler, check_sampling
from engine.sequence import SamplingParams

LOGITS = np.array([2.0, 1.5, 1.4, 0.3, 0.0, -0.2, -1.0, -4.0], np.float32)
OFF = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0, seed=7)
GREEDY = SamplingParams(temperature=0.0)


def probabilities(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """What each filter keeps, by its definition; temperature comes last."""

    def softmax(x: np.ndarray) -> np.ndarray:
        e = np.exp(x - x.max())
        return e / e.sum()

    kept = logits.astype(np.float64)
    order = np.argsort(-kept)
    if params.top_k:
        kept[order[params.top_k :]] = -np.inf
    if params.top_p < 1:
        before = np.cumsum(softmax(kept)[order]) - softmax(kept)[order]
        kept[order[before >= params.top_p]] = -np.inf
    kept[softmax(kept) < params.min_p * softmax(kept).max()] = -np.inf
    return softmax(kept / params.temperature)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.3},
        {"temperature": 1.7, "top_k": 6, "top_p": 0.9, "min_p": 0.2},
    ],
    ids=str,
)
def test_tokens_are_drawn_with_their_probabilities(changes: dict[str, float]) -> None:
    params = dataclasses.replace(OFF, **changes)
    expected = probabilities(LOGITS, params)
    sampler = Sampler(params, len(LOGITS))
    n = 20_000
    counts = np.bincount([sampler.sample(LOGITS) for _ in range(n)], minlength=len(LOGITS))
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    chi_square = ((counts - n * expected)[possible] ** 2 / (n * expected[possible])).sum()
    assert chi_square < 30  # 7 degrees of freedom: exceeded once in 10,000 seeds, and this seed is fixed
    sampler.close()


def test_a_token_that_everything_else_dwarfs_is_always_drawn() -> None:
    sampler = Sampler(SamplingParams(top_k=1), 8)
    assert {sampler.sample(LOGITS) for _ in range(50)} == {0}


def draw(params: SamplingParams, index: int = 0, n: int = 64) -> list[int]:
    sampler = Sampler(params, len(LOGITS), index=index)
    return [sampler.sample(LOGITS) for _ in range(n)]


def test_a_seed_and_an_index_fix_the_answer() -> None:
    assert draw(OFF) == draw(OFF)
    assert draw(OFF, index=1) == draw(OFF, index=1)
    assert draw(OFF, index=1) != draw(OFF)
    assert draw(dataclasses.replace(OFF, seed=8)) != draw(OFF)


def test_a_seed_may_be_any_whole_number() -> None:
    huge = dataclasses.replace(OFF, seed=2**64 + 3)
    assert draw(huge) == draw(huge)
    # llama.cpp would take this number for "no seed" and draw differently each time.
    reserved = dataclasses.replace(OFF, seed=2**32 - 1)
    assert draw(reserved) == draw(reserved)


def test_without_a_seed_answers_differ() -> None:
    unseeded = dataclasses.replace(OFF, seed=None)
    assert len({tuple(draw(unseeded)) for _ in range(5)}) > 1


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40))
def test_temperature_zero_takes_the_greatest(values: list[float]) -> None:
    logits = np.array(values, np.float32)
    sampler = Sampler(GREEDY, len(logits))
    assert logits[sampler.sample(logits)] == max(logits)


def test_a_temperature_near_zero_takes_the_greatest_too() -> None:
    logits = np.array([10.0, 30.0, 29.0], np.float32)
    for temperature in (1e-38, 1e-5, 1e-3):
        sampler = Sampler(dataclasses.replace(OFF, temperature=temperature), 3)
        assert {sampler.sample(logits) for _ in range(20)} == {1}


def test_repeat_penalty_divides_positive_logits_and_multiplies_negative_ones() -> None:
    penalised = dataclasses.replace(GREEDY, repeat_penalty=2.0)
    positive = np.array([3.0, 1.6, 1.4], np.float32)  # 3 / 2 = 1.5
    assert Sampler(penalised, 3).sample(positive) == 0
    assert Sampler(penalised, 3, history=[0]).sample(positive) == 1
    assert Sampler(penalised, 3, history=[0, 0]).sample(positive) == 1  # once, however often it occurred
    assert Sampler(penalised, 3, history=[0, 1]).sample(positive) == 0  # 1.5, 0.8, 1.4
    negative = np.array([-1.0, -1.9, -2.1], np.float32)  # -1 * 2 = -2
    assert Sampler(penalised, 3, history=[0]).sample(negative) == 1
    assert Sampler(penalised, 3, history=[0, 1]).sample(negative) == 0


def test_repeat_penalty_counts_what_was_drawn_and_forgets() -> None:
    sampler = Sampler(dataclasses.replace(GREEDY, repeat_penalty=2.0), 3, history=(2, 2))
    assert [sampler.sample(np.array([3.0, 1.6, 1.4], np.float32)) for _ in range(3)] == [0, 1, 0]
    long_ago = [0] + [2] * PENALTY_WINDOW
    assert Sampler(dataclasses.replace(GREEDY, repeat_penalty=2.0), 3, history=long_ago).sample(LOGITS[:3]) == 0


def test_logits_are_left_as_they_are() -> None:
    logits = LOGITS.copy()
    logits.flags.writeable = False
    for params in (OFF, GREEDY, dataclasses.replace(GREEDY, repeat_penalty=1.5)):
        Sampler(params, len(logits), history=[0]).sample(logits)
    assert (logits == LOGITS).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("params", [OFF, GREEDY, SamplingParams(repeat_penalty=1.2)], ids=["draw", "greedy", "penalty"])
def test_logits_that_are_no_numbers_are_an_error(bad: float, params: SamplingParams) -> None:
    logits = LOGITS.copy()
    logits[5] = bad
    with pytest.raises(ModelFileError, match="not a number"):
        Sampler(params, len(logits)).sample(logits)
    with pytest.raises(ModelFileError, match="not a number"):
        Sampler(params, len(logits)).sample(np.full(8, -math.inf, np.float32))


def test_a_logit_of_minus_infinity_is_never_drawn() -> None:
    logits = np.full(8, -math.inf, np.float32)
    logits[3] = -2.0
    assert {Sampler(params, 8).sample(logits) for params in (OFF, GREEDY, SamplingParams())} == {3}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("temperature", v) for v in (-0.1, math.nan, math.inf, 1e39, "hot", None, True)],
        *[("top_k", v) for v in (-1, 2.5, math.inf)],
        *[("top_p", v) for v in (0, -1, 1.1, math.nan)],
        *[("min_p", v) for v in (-0.1, 1.1, math.nan)],
        *[("repeat_penalty", v) for v in (0, -1, 1e-38, math.inf, math.nan)],
        *[("seed", v) for v in (-1, 0.5, "x" * 500)],
    ],
)
def test_settings_without_a_meaning_are_refused(name: str, value: Any) -> None:
    params = dataclasses.replace(OFF, **{name: value})
    with pytest.raises(PromptError, match=rf"^The setting {name} is '.{{1,50}}': give a .*\.$"):
        check_sampling(params)
    with pytest.raises(PromptError):
        Sampler(params, 8)


def test_closing_twice_is_harmless() -> None:
    sampler = Sampler(OFF, 8)
    sampler.close()
    sampler.close()
