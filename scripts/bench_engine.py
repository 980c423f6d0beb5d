"""Prefill and decode of the paged engine against llama.cpp, interleaved in one process.

Usage: python scripts/bench_engine.py [MODEL.gguf] [--depths 0,512,2048,4096] [--repetitions 4] [--json]

Tests are named as llama-bench names them: pp512 @ d2048 computes 512 tokens after 2,048 known ones, tg64 decodes 64
tokens one by one. The paged engine takes turns with the contiguous one, first with llama.cpp's flash attention on,
then off; the ratio is that to the faster setting. Both are timed through Engine.step, which includes greedy sampling.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import click
import numpy as np

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.gguf_file import GgufFile
from engine.interface import Engine
from engine.paged import PagedEngine
from engine.plan import ModelPlan
from engine.sequence import Request, SamplingParams
from engine.threads import usable_cores
from models.locate import locate

GREEDY = SamplingParams(temperature=0)
LANES = ("flash", "no_flash")


@dataclass(frozen=True)
class Pair:
    """Medians in seconds of the paged lane and of one lane of llama.cpp, which took turns."""

    paged_s: float
    llama_s: float


@dataclass(frozen=True)
class Result:
    """One test against both settings of llama.cpp."""

    test: str
    n_prompt: int
    n_gen: int
    n_depth: int
    flash: Pair
    no_flash: Pair

    @property
    def ratio(self) -> float:
        """Time of llama.cpp's better setting, divided by ours: above 1 we are faster."""
        return min(pair.llama_s / pair.paged_s for pair in (self.flash, self.no_flash))

    def row(self) -> str:
        """One line of the table; speeds in tokens per second."""
        n = self.n_prompt or 1
        cells = [f"{n / pair.paged_s:10.1f}{n / pair.llama_s:10.1f}" for pair in (self.flash, self.no_flash)]
        return f"{self.test:16}{cells[0]}   {cells[1]}{self.ratio:9.3f}"


class Bench:
    """The three lanes over one model, each with the same known tokens in its cache."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        config = EngineConfig(context=context, threads=threads, device="CPU")
        self.engines: dict[str, Engine] = {
            "paged": PagedEngine(path, config, _ignore),
            "flash": ContiguousEngine(path, config, _ignore, flash=True),
            "no_flash": ContiguousEngine(path, config, _ignore, flash=False),
        }
        self.n_vocab = ModelPlan.from_gguf(GgufFile.open(path)).vocabulary
        self.random = np.random.default_rng(0)
        self.prefix: list[int] = []

    def tokens(self, n: int) -> list[int]:
        margin = self.n_vocab // 10  # control tokens are at the ends
        return [int(token) for token in self.random.integers(margin, self.n_vocab - margin, n)]

    def start(self, depth: int) -> None:
        """Bring all lanes to `depth` known tokens, different ones from before."""
        self.prefix = self.tokens(depth)
        for engine in self.engines.values():
            self._submit(engine, self.tokens(1), 1)
            _finish(engine)

    def prefill(self, n: int, repetitions: int) -> Result:
        """Compute `n` tokens after the known ones."""

        def turn(engines: dict[str, Engine]) -> dict[str, list[float]]:
            fresh = self.tokens(n)
            for engine in engines.values():
                self._submit(engine, fresh, 1)
            return {lane: [_seconds(partial(_finish, engine))] for lane, engine in engines.items()}

        return self._against_both(f"pp{n}", turn, repetitions, n_prompt=n, n_gen=0)

    def decode(self, n: int, repetitions: int) -> Result:
        """Compute `n` tokens, one at a time; the first step, which reads the last token of the prompt, is left out."""

        def turn(engines: dict[str, Engine]) -> dict[str, list[float]]:
            fresh = self.tokens(1)
            seconds: dict[str, list[float]] = {lane: [] for lane in engines}
            for engine in engines.values():
                self._submit(engine, fresh, n + 1)
                engine.step()
            for _ in range(n):
                for lane, engine in engines.items():
                    seconds[lane].append(_seconds(engine.step))
            return seconds

        return self._against_both(f"tg{n}", turn, repetitions, n_prompt=0, n_gen=n)

    def _against_both(
        self,
        test: str,
        turn: Callable[[dict[str, Engine]], dict[str, list[float]]],
        repetitions: int,
        *,
        n_prompt: int,
        n_gen: int,
    ) -> Result:
        """Take turns with one setting of llama.cpp, then with the other.

        Three lanes in turn would not do: what one leaves in the caches helps or slows the next, by up to 10 %.
        """
        pairs = {}
        for lane in LANES:
            engines = {"paged": self.engines["paged"], lane: self.engines[lane]}
            turn(engines)  # warms up
            swapped = dict(reversed(engines.items()))
            turns = [turn(swapped if i % 2 else engines) for i in range(repetitions)]
            paged, llama = (statistics.median(s for t in turns for s in t[name]) for name in engines)
            pairs[lane] = Pair(paged, llama)
        depth = len(self.prefix)
        return Result(f"{test} @ d{depth}", n_prompt, n_gen, depth, pairs["flash"], pairs["no_flash"])

    def _submit(self, engine: Engine, fresh: list[int], n_tokens: int) -> None:
        engine.submit(Request((*self.prefix, *fresh), GREEDY, max_tokens=n_tokens))


def _ignore(_fraction: float) -> None:
    pass


def _finish(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--depths", default="0,512,2048,4096", help="Known tokens before each test.")
@click.option("--prompts", default="128,512", help="Tokens per prefill test.")
@click.option("--generate", default=64, help="Tokens per decode test.")
@click.option("--repetitions", default=4, help="Of each test.")
@click.option("--threads", default=usable_cores(), help="CPU threads of all lanes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per test.")
def main(
    model: str | None, depths: str, prompts: str, generate: int, repetitions: int, threads: int, as_json: bool
) -> None:
    path = str(locate(model))
    levels = [int(depth) for depth in depths.split(",")]
    lengths = [int(length) for length in prompts.split(",")]
    bench = Bench(path, threads, context=max(levels) + max(*lengths, generate) + 64)
    if not as_json:
        print(f"{path}, {threads} threads; tokens per second; ratio to llama.cpp's better setting", file=sys.stderr)
        print(f"{'test':16}{'paged':>10}{'flash on':>10}   {'paged':>10}{'flash off':>10}{'ratio':>9}")
    for depth in levels:
        bench.start(depth)
        for result in (bench.decode(generate, repetitions), *(bench.prefill(n, repetitions) for n in lengths)):
            print(json.dumps(asdict(result) | {"ratio": result.ratio}) if as_json else result.row(), flush=True)


if __name__ == "__main__":
    main()
