"""Answers with speculation are those without it: the same distribution, the same draws, the same logits."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.kv_manager import KvManager
from engine.kv_pool import KvLayout
from engine.prompt_lookup import PromptLookup
from engine.sampling import Sampler
from engine.scheduler import Scheduler
from engine.sequence import Request, SamplingParams, Sequence
from engine.speculation import verify
from engine.tokenizer import Tokenizer
from tests.engine.recording import RecordingEngine
from tests.engine.test_parity import SAME_SUM, assert_close, forced, nmse

VOCABULARY = 4


class Always:
    """Stands in for Speculation: every step has a draft, of what the lookup says or of chance, whatever it costs."""

    def __init__(self, lengths: Iterator[int], n_vocab: int) -> None:
        self.lengths = lengths
        self.chance = np.random.default_rng(0)
        self.n_vocab = n_vocab
        self.n_drafted = self.n_accepted = 0

    def draft(self, sequence: Sequence, limit: int) -> tuple[int, ...]:
        lookup = PromptLookup(sequence.token_ids)
        lookup.update()
        n_tokens = min(next(self.lengths), limit)
        return lookup.draft(n_tokens) or tuple(int(t) for t in self.chance.integers(0, self.n_vocab, n_tokens))

    def observe(self, _sequence: Sequence, draft: tuple[int, ...], drawn: list[int], _seconds: float) -> None:
        self.n_drafted += len(draft)
        self.n_accepted += len(drawn) - 1


def row_after(history: tuple[int, ...]) -> np.ndarray:
    """A model: the logits follow from the last two tokens alone, so that histories repeat themselves often."""
    return np.random.default_rng([7, *history[-2:]]).normal(0, 1.5, VOCABULARY).astype(np.float32)


def sampled(prompt: tuple[int, ...], params: SamplingParams, n_tokens: int, speculation: Always | None) -> list[int]:
    """An answer of the model, through the scheduler, the sampler and the verification of the engine."""
    gate: Any = speculation
    scheduler = Scheduler(KvManager(n_blocks=8), context=120, speculation=gate)
    scheduler.submit(Request(prompt, params, max_tokens=n_tokens))
    sampler = Sampler(params, VOCABULARY, history=prompt)
    answer: list[int] = []
    while (plan := scheduler.schedule()) is not None:
        [chunk] = plan.chunks
        known, draft = tuple(chunk.sequence.token_ids), chunk.draft
        rows = [row_after((*known, *draft[:i])) for i in range(1 + len(draft))]
        drawn = verify(draft, (sampler.sample(row) for row in rows), frozenset())
        scheduler.complete(plan, {chunk.sequence.sequence_id: drawn})
        answer += drawn
    sampler.close()
    return answer


CHANGES: list[dict[str, Any]] = [
    {},
    {"repeat_penalty": 1.4},
    {"temperature": 0, "repeat_penalty": 1.1},
    {"top_k": 2, "top_p": 0.9},
]


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_the_same_seed_draws_the_same_tokens(changes: dict[str, Any]) -> None:
    for seed in range(20):
        params = SamplingParams(**{"temperature": 1.2, "seed": seed, **changes})
        always = Always(itertools.cycle([3, 1, 7, 2]), VOCABULARY)
        assert sampled((0, 1), params, 80, always) == sampled((0, 1), params, 80, None)
        assert 0 < always.n_accepted < always.n_drafted


def test_tokens_have_the_probabilities_of_the_model() -> None:
    """Three tokens of 3,000 answers, drawn with drafts, against the products of the model's own probabilities."""
    prompt, n = (2, 0, 1, 3, 2, 0, 1), 3000
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    always = Always(itertools.repeat(3), VOCABULARY)
    counts = Counter(
        tuple(sampled(prompt, dataclasses.replace(params, seed=seed), 5, always)[1:4]) for seed in range(n)
    )
    assert 0 < always.n_accepted < always.n_drafted
    expected: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(VOCABULARY), repeat=4):
        share = 1.0
        for i, token in enumerate(path):
            weights = np.exp(row_after((*prompt, *path[:i])).astype(np.float64))
            share *= weights[token] / weights.sum()
        expected[path[1:]] += n * share
    chi_square = sum((counts[path] - mean) ** 2 / mean for path, mean in expected.items())
    assert chi_square < 120  # 63 degrees of freedom: exceeded once in 50,000 sets of seeds, and these are fixed


class Speculating(RecordingEngine):
    """Has a draft in every step, of three, one, seven, two … tokens."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        self.always: Any = Always(itertools.cycle([3, 1, 7, 2, 14]), self._plan.vocabulary)
        self._scheduler._speculation = self.always


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("options", [{}, {"heads_kv": 4}, {"architecture": "qwen3"}], ids=["llama", "MHA", "qwen3"])
def test_logits_are_those_of_single_steps(
    tiny_model: Callable[..., Path], options: dict[str, Any], layout: KvLayout
) -> None:
    """Along one answer, which repeats itself with changes, so that drafts are accepted in whole, in part and not."""
    path = tiny_model(**options)
    prompt = [(7 * i * i + 3 * i) % 90 for i in range(30)]
    answer = [*prompt[:20], 91, *prompt[5:25], 3, *prompt[:8], *range(40, 70)]
    rows = []
    for kind in (RecordingEngine, Speculating):
        engine = kind(path, layout=layout, speculate=False)
        request = engine.follow(prompt, answer)
        engine.run()
        assert engine.drawn[request, 0] == answer
        rows.append(engine.logits(request))
        if isinstance(engine, Speculating):
            assert 20 < engine.always.n_accepted < engine.always.n_drafted
        engine.close()
    assert_close(rows[1], rows[0], SAME_SUM)


def test_a_quoting_answer_of_the_starter_model_stays_the_same(starter_path: Path) -> None:
    """Greedy: the same choices, but where the best two are closer than single and joint steps are from each other."""
    tokenizer = Tokenizer(str(starter_path))
    text = "The keeper of the lighthouse wrote every evening what the sea had been like, and who had passed. "
    prompt = tokenizer.encode_raw(3 * text + "The keeper of")
    tokenizer.close()
    drawn, rows = [], []
    for kind in (RecordingEngine, Speculating):
        engine = kind(starter_path, threads=2, speculate=False)
        request = engine.greedy(prompt, 60)
        engine.run()
        drawn.append(engine.drawn[request, 0])
        rows.append(engine.logits(request))
        if isinstance(engine, Speculating):
            assert engine.always.n_accepted > 30
        engine.close()
    n_same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*drawn, strict=True)))
    assert n_same > 30
    settings = [forced(starter_path, list(prompt), drawn[0], flash=flash) for flash in (False, True)]
    assert_close(rows[1][: n_same + 1], rows[0][: n_same + 1], nmse(*settings))
