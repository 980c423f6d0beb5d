"""Decode with prompt lookup speculation against decode without it, in turns in one process.

Usage: python scripts/bench_speculation.py [MODEL.gguf] [--tests quote,edit,story] [--turns 8]

quote: continues a text of 400 tokens that stands in the prompt twice. edit: is asked to repeat that text with its
mistakes corrected; how far a small model obeys varies. story: sampled, with another seed each turn. Answers have up to
400 tokens. Speeds are of the decode alone: tokens after the first one per second. A ratio compares the two answers of a
turn, of one and the same engine, since where its memory lies makes an engine faster or slower; the table shows the
median of all turns, the least and the greatest, and what became of the drafts.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click

from engine.config import EngineConfig
from engine.messages import ChatMessage
from engine.paged import PagedEngine
from engine.sequence import Request, SamplingParams, SequenceStats, TokenEvent
from engine.tokenizer import Tokenizer
from models.locate import locate

TEXT_TOKENS = 400


class Answer(NamedTuple):
    """Decode speed in tokens per second, and the tokens."""

    speed: float
    token_ids: list[int]
    stats: SequenceStats


class Turn(NamedTuple):
    """The same request, answered with speculation and without."""

    speculative: Answer
    plain: Answer

    @property
    def ratio(self) -> float:
        return self.speculative.speed / self.plain.speed


def answer(engine: PagedEngine, request: Request) -> Answer:
    """Answer one request alone."""
    engine.submit(request)
    token_ids: list[int] = []
    started = finished = 0.0
    stats = None
    while engine.has_work():
        for event in engine.step():
            if isinstance(event, TokenEvent):
                finished = time.perf_counter()
                started = started or finished
                stats = event.stats
                if event.token_id is not None:
                    token_ids.append(event.token_id)
    assert stats is not None
    return Answer((len(token_ids) - 1) / (finished - started), token_ids, stats)


def requests(tokenizer: Tokenizer) -> dict[str, Callable[[int], Request]]:
    """By test, the request of a turn."""
    readme = Path(__file__).parent.parent.joinpath("README.md").read_text(encoding="utf-8")
    ids = tokenizer.encode_raw(readme)[:TEXT_TOKENS]
    text = b"".join(map(tokenizer.piece, ids)).decode(errors="ignore")
    quote = (*ids, *ids, *ids[:16])
    edit = tokenizer.encode_chat(
        [ChatMessage("user", f"Repeat this text, with all spelling mistakes fixed:\n\n{text}")]
    ).token_ids
    story = tokenizer.encode_chat(
        [ChatMessage("user", "Write a long story about a lighthouse keeper and a lost whale.")]
    ).token_ids
    greedy = SamplingParams(temperature=0)

    def request(prompt: tuple[int, ...], sampling: SamplingParams) -> Request:
        return Request(prompt, sampling, max_tokens=TEXT_TOKENS, stop_tokens=tokenizer.stop_tokens)

    return {
        "quote": lambda _turn: request(quote, greedy),
        "edit": lambda _turn: request(edit, greedy),
        "story": lambda turn: request(story, SamplingParams(seed=turn)),
    }


def row(name: str, turns: list[Turn]) -> str:
    """One line of the table."""
    ratios = [turn.ratio for turn in turns]
    speeds = [statistics.median(lane.speed for lane in lanes) for lanes in zip(*turns, strict=True)]
    drafted = sum(turn.speculative.stats.drafted_tokens for turn in turns)
    accepted = sum(turn.speculative.stats.accepted_tokens for turn in turns)
    generated = sum(len(turn.speculative.token_ids) for turn in turns)
    same = sum(turn.speculative.token_ids == turn.plain.token_ids for turn in turns)
    return (
        f"{name:8}{speeds[1]:8.1f}{speeds[0]:13.1f}{statistics.median(ratios):8.3f} "
        f"({min(ratios):.2f}–{max(ratios):.2f})   {accepted:,} of {drafted:,} drafts, {generated:,} tokens, "
        f"{same} of {len(turns)} answers the same"
    )


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--tests", default="quote,edit,story", help="Which tests.")
@click.option("--turns", default=8, help="Answers of each kind per test.")
def main(model: str | None, tests: str, turns: int) -> None:
    path = str(locate(model))
    tokenizer = Tokenizer(path)
    engine = PagedEngine(path, EngineConfig(context=4096, device="CPU"), lambda _done: None)
    speculation = engine._scheduler._speculation
    print(f"{path}\n{'test':8}{'plain':>8}{'speculative':>13}{'ratio':>8}")
    for name, request in requests(tokenizer).items():
        if name not in tests.split(","):
            continue
        results = []
        for number in range(turns):
            answers = {}
            for speculates in (True, False) if number % 2 == 0 else (False, True):
                engine._scheduler._speculation = speculation if speculates else None
                answers[speculates] = answer(engine, request(number))
            results.append(Turn(answers[True], answers[False]))
        print(row(name, results), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
