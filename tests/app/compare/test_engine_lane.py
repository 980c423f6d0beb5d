"""The lanes that are engines of ours, on a tiny model: times, tokens and memory; and the gaps between logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.compare.engine_lane import EngineVariant
from app.compare.lanes import RequestStopped
from app.compare.lineup import make_lineup
from app.compare.logit_gap import GapCase, measure_gaps
from engine.config import EngineConfig, EngineKind
from engine.errors import EngineDied, ModelFileError
from engine.messages import TextRequest, TokenPrompt
from engine.sequence import SamplingParams
from models.inspect import inspect_model
from tests.reference import F16, LlamaDecode
from tests.tiny_gguf import write_tiny

GREEDY = SamplingParams(temperature=0)
CONTEXT = 1024


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf", tokenizer="gpt2", context=CONTEXT)


def config(kind: EngineKind, **options: bool) -> EngineConfig:
    return EngineConfig(kind=kind, context=CONTEXT, threads=1, device="CPU", **options)


@pytest.fixture(params=[EngineKind.PAGED, EngineKind.CONTIGUOUS])
def variant(path: Path, request: pytest.FixtureRequest) -> Iterator[EngineVariant]:
    variant = EngineVariant("", path, config(request.param))
    variant.start(lambda _: None)
    yield variant
    variant.close()


def test_what_an_answer_tells(variant: EngineVariant) -> None:
    request = TextRequest(TokenPrompt(tuple(range(100))), GREEDY, 9)
    texts: list[str] = []
    answer = variant.ask(request, texts.append, lambda: False)
    assert answer.generated_tokens == len(answer.token_ids[0]) == 9
    assert "".join(texts) == answer.texts[0]
    assert (answer.prompt_tokens, answer.reused_tokens, answer.computed_tokens) == (100, 0, 100)
    assert answer.engine is not None
    assert answer.prefill_s is not None
    assert 0 < answer.prefill_s <= answer.engine.first_s < answer.engine.end_s <= answer.user.end_s
    assert answer.engine.first_s <= answer.user.first_s
    # sixteen tokens further on: the first hundred are known, or the whole blocks of them
    again = variant.ask(TextRequest(TokenPrompt(tuple(range(116))), GREEDY, 1), texts.append, lambda: False)
    assert again.reused_tokens in (96, 100)
    assert (again.reused_tokens or 0) + (again.computed_tokens or 0) == 116


def test_four_answers_count_together(variant: EngineVariant) -> None:
    request = TextRequest(TokenPrompt(tuple(range(50))), SamplingParams(seed=1), 5, n=4)
    answer = variant.ask(request, lambda _: None, lambda: False)
    assert answer.generated_tokens == 20
    assert len(answer.token_ids) == len(answer.texts) == 4
    assert answer.prompt_tokens == answer.computed_tokens == 50
    assert answer.engine is not None
    assert answer.engine.end_s > answer.engine.first_s


def test_stopping_a_request(variant: EngineVariant) -> None:
    request = TextRequest(TokenPrompt(tuple(range(100))), GREEDY, 900)
    with pytest.raises(RequestStopped):
        variant.ask(request, lambda _: None, lambda: True)
    answer = variant.ask(TextRequest(TokenPrompt((1, 2)), GREEDY, 2), lambda _: None, lambda: False)
    assert answer.generated_tokens == 2


def test_a_fresh_start_knows_nothing(variant: EngineVariant) -> None:
    request = TextRequest(TokenPrompt(tuple(range(100))), GREEDY, 1)
    variant.ask(request, lambda _: None, lambda: False)
    variant.forget()
    assert variant.ask(request, lambda _: None, lambda: False).reused_tokens == 0
    assert variant.quit_and_come_back() is False
    assert variant.ask(request, lambda _: None, lambda: False).reused_tokens == 0


def test_an_engine_that_dies_says_so_and_does_not_come_back_by_itself(variant: EngineVariant) -> None:
    variant.close()
    request = TextRequest(TokenPrompt((1, 2, 3)), GREEDY, 1)
    with pytest.raises(EngineDied):
        variant.ask(request, lambda _: None, lambda: False)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "no.gguf"
    file.write_bytes(b"no")
    variant = EngineVariant("", file, config(EngineKind.PAGED))
    with pytest.raises(ModelFileError):
        variant.start(lambda _: None)
    variant.close()


def test_memory(path: Path) -> None:
    """The bytes of a token: two layers, two heads of 16 numbers in F16, keys and values."""
    token_bytes = 2 * 2 * 16 * 2 * 2
    request = TextRequest(TokenPrompt(tuple(range(100))), GREEDY, 10)  # of 109 computed tokens, 96 fill blocks
    for kind in EngineKind:
        variant = EngineVariant("", path, config(kind))
        variant.start(lambda _: None)
        variant.ask(request, lambda _: None, lambda: False)
        memory = variant.memory()
        variant.close()
        slots = CONTEXT if kind is EngineKind.CONTIGUOUS else 112
        assert memory.kv_used == 109 * token_bytes
        assert memory.kv_reserved == slots * token_bytes
        assert memory.waste == pytest.approx(1 - 109 / slots)
        assert memory.kv_resident is not None
        assert memory.process is not None
        assert memory.process > 10 << 20


def test_the_lineup(path: Path) -> None:
    names = ("contiguous", "contiguous+ram", "paged", "paged-no-lookup")
    lineup = make_lineup(names, (), path, config(EngineKind.PAGED), inspect_model((path,)), ())
    assert tuple(lane.name for lane in lineup.session) == names
    assert tuple(lane.name for lane in lineup.raw) == ("contiguous", "paged")
    assert [variant.name for variant in lineup.session[0].variants] == ["flash on", "flash off"]
    assert lineup.batch == ()


def test_gaps_are_those_of_llama_cpp(path: Path) -> None:
    prompt, before = (5, 6, 7, 8), (9, 10)
    with LlamaDecode(path, kv_type=F16) as llama:
        logits = llama.decode([*prompt, *before])[-1]
    best, second = map(int, np.argsort(logits)[::-1][:2])
    request = TextRequest(TokenPrompt(prompt), GREEDY, 4)
    cases = [GapCase(request, before, second, best), GapCase(request, before, best, second)]
    contiguous = config(EngineKind.CONTIGUOUS)
    gaps = measure_gaps(path, contiguous, cases, lambda: False)
    assert gaps is not None
    assert gaps[0] == pytest.approx(logits[best] - logits[second], abs=0.02)
    assert gaps[1] == -gaps[0]
    assert measure_gaps(path, contiguous, cases, lambda: True) is None
    assert measure_gaps(path.parent / "none.gguf", contiguous, cases, lambda: False) is None
