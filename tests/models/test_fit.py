"""Whether a model fits a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.memory import available_memory
from models.fit import ADVICE_CONTEXT, OVERHEAD, Fit, Machine, advice_context, estimate
from models.inspect import inspect_model
from tests.app.measured import measured

GIB = 2**30


@pytest.mark.parametrize(
    ("available", "gpu_free", "fit"),
    [
        (16 * GIB, 0, Fit.MEMORY),
        (16 * GIB, 8 * GIB, Fit.GPU),
        (1 * GIB, 8 * GIB, Fit.GPU),
        (16 * GIB, 4 * GIB, Fit.MEMORY),  # the paged engine does not split a model
        (6 * GIB, 0, Fit.TIGHT),
        (5 * GIB, 0, Fit.TOO_LARGE),
        (5 * GIB, 5 * GIB, Fit.TOO_LARGE),
    ],
)
def test_fit(available: int, gpu_free: int, fit: Fit) -> None:
    found = estimate(4 * GIB, 128 * 1024, 8192, Machine(available, gpu_free))
    assert found == (fit, 4 * GIB + GIB + OVERHEAD)


def test_where_it_becomes_tight_and_too_large() -> None:
    needed = estimate(GIB, 0, 0, Machine(0, 0)).needed
    assert estimate(GIB, 0, 0, Machine(needed - 1, 0)).fit is Fit.TOO_LARGE
    assert estimate(GIB, 0, 0, Machine(needed, 0)).fit is Fit.TIGHT
    assert estimate(GIB, 0, 0, Machine(needed * 5 // 4 - 8, 0)).fit is Fit.TIGHT
    assert estimate(GIB, 0, 0, Machine(needed * 5 // 4 + 8, 0)).fit is Fit.MEMORY


def test_advice_counts_with_the_trained_context_at_most() -> None:
    assert advice_context(2048) == 2048
    assert advice_context(131_072) == ADVICE_CONTEXT == advice_context(0)


def test_this_machine() -> None:
    machine = Machine.now()
    assert machine.available == pytest.approx(available_memory(), rel=0.2)
    assert machine.gpu_free >= 0


def test_a_running_engine_takes_no_more_than_is_said(starter_path: Path) -> None:
    """Its larger process, at its peak; a prompt of more than a full step of 512 tokens."""
    options = ["--raw", "--max-tokens", "2", "--json", "--engine", "paged"]
    result = measured(["-m", "app", "run", *options, "-"], stdin="word " * 600, timeout=60)
    answer = json.loads(result.stdout)
    summary = inspect_model([starter_path])
    assert answer["prompt_tokens"] > 512
    used = answer["prompt_tokens"] + answer["generated_tokens"]
    assert summary.kv_bytes_per_token is not None
    room = answer["kv"]["bytes_resident"] - used * summary.kv_bytes_per_token  # memory is given in pages
    needed = estimate(summary.weight_bytes, summary.kv_bytes_per_token, used, Machine(0, 0)).needed
    assert summary.weight_bytes < result.peak < needed + room
