"""The map of blocks: whose they are, running, finished and shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.paged import PagedEngine
from engine.sequence import Request, SamplingParams
from engine.survey import NOBODY, SEVERAL, BlockState

GREEDY = SamplingParams(temperature=0)


def ask(prompt: range, owner: int) -> Request:
    return Request(tuple(prompt), GREEDY, max_tokens=40, owner=owner)


def test_blocks_have_owners(tiny_model: Callable[..., Path]) -> None:
    engine = PagedEngine(str(tiny_model()), EngineConfig(context=256, device="CPU"), lambda _: None, n_blocks=16)
    assert engine.survey().states == bytes(16)
    engine.submit(ask(range(40), owner=7))
    engine.step()
    survey = engine.survey()
    assert survey.states.count(BlockState.USED) == survey.kv.blocks_used == 3
    assert (survey.owners.count(7), survey.owners.count(NOBODY)) == (3, 13), "the block that is not full too"
    [sequence] = survey.sequences
    assert (sequence.owner, sequence.n_tokens, sequence.n_blocks, sequence.n_runs) == (7, 40, 3, 1)

    engine.submit(ask(range(36), owner=8))
    engine.step()
    survey = engine.survey()
    assert survey.owners.count(SEVERAL) == 2, "32 tokens in common"
    assert [sequence.owner for sequence in survey.sequences] == [7, 8]
    while engine.has_work():
        engine.step()
    survey = engine.survey()
    assert not survey.sequences
    assert survey.kv.blocks_used == 0
    assert survey.states.count(BlockState.CACHED) == survey.kv.blocks_cached
    assert survey.owners.count(SEVERAL) == 2
    assert survey.owners.count(7) == 5 - 2, "79 tokens"
    assert survey.owners.count(8) == 5 - 2, "75 tokens"
    assert survey.stats == engine.scheduler_stats()
    engine.close()


def test_a_contiguous_cache_has_no_blocks(tiny_model: Callable[..., Path]) -> None:
    engine = ContiguousEngine(str(tiny_model()), EngineConfig(context=256, device="CPU"), lambda _: None)
    survey = engine.survey()
    assert (survey.stats, survey.states, survey.owners, survey.sequences) == (None, b"", (), ())
    assert survey.kv == engine.kv_stats()
    engine.close()
