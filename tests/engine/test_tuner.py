"""Measuring while a model is loaded: when, with which effect, and that what is measured is what runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import attention_probe, tuner
from engine.attention_choice import AttentionChoice
from engine.config import EngineConfig, KvType
from engine.devices import cpu_device
from engine.kv_pool import KvLayout
from engine.paged import PagedEngine
from engine.plan import KvGroup
from engine.random_pool import random_pool
from engine.sequence import Request, SamplingParams, TokenEvent
from engine.tuner import thread_candidates
from engine.tuning import Tuning
from engine.tuning_file import remember
from engine.turns import Effort, take_turns

PROMPT = [(7 * i * i + 3 * i) % 90 for i in range(200)]


def load(path: Path, tuning_file: Path | None, **options: Any) -> PagedEngine:
    config = EngineConfig(
        context=256, device="CPU", tuning_file=None if tuning_file is None else str(tuning_file), **options
    )
    return PagedEngine(str(path), config, lambda _fraction: None)


def forward_of(engine: PagedEngine) -> Any:
    return engine._forward


def test_without_a_file_nothing_is_measured(tiny_model: Callable[..., Path]) -> None:
    engine = load(tiny_model(), None)
    assert engine.tuning_report is None
    assert forward_of(engine)._choice == AttentionChoice()
    assert engine._scheduler.token_budget == 512
    engine.close()


@pytest.mark.parametrize("kv_type", KvType)
@pytest.mark.parametrize(
    "options",
    [{}, {"layers": 1}, {"layers": 5, "architecture": "qwen3"}, {"weight_type": "Q8_0", "ff": 128, "heads_kv": 1}],
    ids=["plain", "one layer", "odd layers", "one KV head"],
)
def test_measured_once(
    tiny_model: Callable[..., Path], tmp_path: Path, options: dict[str, Any], kv_type: KvType
) -> None:
    path, file = tiny_model(head_dim=32, **options), tmp_path / "tuning.json"
    fractions: list[float] = []
    config = EngineConfig(context=256, device="CPU", kv_type=kv_type, tuning_file=str(file))
    engine = PagedEngine(str(path), config, fractions.append)
    report = engine.tuning_report
    assert report is not None
    assert report.remembered
    assert [row.columns for row in report.attention.decodes] == list(attention_probe.COLUMNS)
    assert all(np.isfinite(row).all() and min(row) > 0 for row in report.attention.decodes)
    assert all(min(row.flash, row.packed) > 0 for row in report.attention.chunks)
    assert report.tuning.chunk_tokens in [speed.value for speed in report.chunks]
    assert report.tuning.threads in thread_candidates(None)
    assert fractions == sorted(fractions)
    assert len([fraction for fraction in fractions if 0.5 < fraction < 0.95]) > 10
    engine.close()

    again = load(path, file, kv_type=kv_type)
    assert again.tuning_report is None
    assert forward_of(again)._choice == report.tuning.attention
    assert forward_of(again)._executor._n_threads == report.tuning.threads
    assert again._scheduler.token_budget == report.tuning.chunk_tokens
    again.close()


def test_what_is_remembered_is_used_and_what_the_caller_says_wins(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = tiny_model(), tmp_path / "tuning.json"
    keys: list[str] = []
    monkeypatch.setattr(tuner, "_AT_LEISURE", tuner._AT_START)
    monkeypatch.setattr(tuner, "remember", lambda _path, key, _tuning: bool(keys.append(key)))
    load(path, file, threads=1).close()
    tuning = Tuning(1, AttentionChoice(96, 160, flash=False), 128)
    remember(str(file), keys[0], tuning)

    engine = load(path, file, threads=1)
    assert (forward_of(engine)._choice, engine._scheduler.token_budget) == (tuning.attention, 128)
    engine.close()
    config = EngineConfig(context=256, threads=1, device="CPU", tuning_file=str(file))
    own = AttentionChoice(flash=True)
    engine = PagedEngine(str(path), config, lambda _: None, token_budget=64, choice=own)
    assert (forward_of(engine)._choice, engine._scheduler.token_budget) == (own, 64)
    engine.close()
    engine = load(path, file, threads=2)
    assert engine.tuning_report is not None, "another number of threads was never measured"
    assert engine.tuning_report.threads == (), "the user left no choice"
    assert engine.tuning_report.tuning.threads == 2
    engine.close()
    engine = PagedEngine(str(path), replace(config, retune=True), lambda _: None)
    assert engine.tuning_report is not None
    engine.close()


def test_measuring_changes_nothing_of_the_model(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    """The probes use the very weights that answer afterwards."""
    path = tiny_model()
    answers = []
    for file in (None, tmp_path / "tuning.json"):
        engine = load(path, file, threads=1)
        engine.submit(Request(tuple(PROMPT), SamplingParams(temperature=0), max_tokens=20))
        events = []
        while engine.has_work():
            events += engine.step()
        answers.append([event.token_id for event in events if isinstance(event, TokenEvent)])
        engine.close()
    assert answers[0] == answers[1]
    assert len(set(answers[0])) > 5


def test_other_layouts_are_not_measured(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    config = EngineConfig(context=256, device="CPU", tuning_file=str(tmp_path / "tuning.json"))
    engine = PagedEngine(str(tiny_model()), config, lambda _: None, layout=KvLayout.ROWS)
    assert engine.tuning_report is None
    engine.close()


@pytest.mark.parametrize("kv_type", KvType)
def test_the_pool_to_measure_with_is_in_memory(kv_type: KvType) -> None:
    """Every page is there, and holds ordinary numbers."""
    pool = random_pool(KvGroup((0,), 64, 64, 2, None), 3, 1000, cpu_device(), kv_type)
    assert len(pool.k) == len(pool.v) == 3
    assert pool.bytes_resident() >= 3 * 1000 * pool.bytes_per_slot // 3
    pool.close()


def test_turns_are_fair() -> None:
    turns: list[str] = []

    def lane(name: str) -> Callable[[], list[float]]:
        return lambda: [float(len(turns)), turns.append(name) or 7.0]

    fractions: list[float] = []
    times = take_turns([lane("A"), lane("B"), lane("C")], Effort(3600, 2), fractions.append)
    assert "".join(turns) == "ABCCBAABCCBA"
    assert times.tolist() == [
        [[0, 7], [5, 7], [6, 7], [11, 7]],
        [[1, 7], [4, 7], [7, 7], [10, 7]],
        [[2, 7], [3, 7], [8, 7], [9, 7]],
    ]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert len(take_turns([lane("A")], Effort(1e-9, 100), fractions.append)[0]) == 2


def test_threads_are_not_chosen_while_other_programs_are_busy(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "usable_cores", lambda: 2)
    seen = []
    for n_preemptions in (0, 1_000_000):
        counts = iter([5, 5 + n_preemptions])
        monkeypatch.setattr("engine.forward_probe.preemptions", lambda counts=counts: next(counts))
        engine = load(tiny_model(), tmp_path / f"{n_preemptions}.json")
        assert engine.tuning_report is not None
        seen.append(engine.tuning_report)
        engine.close()
    idle, busy = seen
    assert [speed.value for speed in idle.threads][:2] == [2, 1]
    assert busy.threads == ()
    assert busy.tuning.threads == 2


def test_candidates_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, processors, expected in ((4, 8, (4, 3, 8)), (4, 4, (4, 3)), (1, 1, (1,)), (1, 2, (1, 2))):
        monkeypatch.setattr("engine.tuner.usable_cores", lambda n=cores: n)
        monkeypatch.setattr("engine.tuner.usable_processors", lambda n=processors: n)
        assert thread_candidates(None) == expected
        assert thread_candidates(5) == (5,)
