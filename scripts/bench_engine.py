"""Prefill and decode of the paged engine against llama.cpp, interleaved in one process.

Usage: python scripts/bench_engine.py [MODEL.gguf] [--depths 0,512,2048,4096] [--repetitions 5] [--json]

Tests are named as llama-bench names them: pp512 @ d2048 computes 512 tokens after 2,048 known ones, tg64 decodes 64
tokens one by one. llama.cpp runs with flash attention on and off; the ratio is the faster of the two divided by ours.
Our time is that of PagedEngine.step, scheduler and sampling included; llama.cpp's is that of llama_decode alone.
"""

from __future__ import annotations

import itertools
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
LANES = ("paged", "flash", "no_flash")
ORDERS = tuple(itertools.permutations(LANES))


@dataclass(frozen=True)
class Result:
    """Medians over the repetitions in seconds, and the relative distance between quartiles of the paged lane."""

    test: str
    n_prompt: int
    n_gen: int
    n_depth: int
    paged_s: float
    flash_s: float
    no_flash_s: float
    spread: float

    @property
    def ratio(self) -> float:
        """Time of llama.cpp's better setting, divided by ours: above 1 we are faster."""
        return min(self.flash_s, self.no_flash_s) / self.paged_s

    def row(self) -> str:
        """One line of the table; speeds in tokens per second."""
        n_tokens = self.n_prompt or 1
        speeds = [n_tokens / seconds for seconds in (self.paged_s, self.flash_s, self.no_flash_s)]
        return (
            f"{self.test:16}" + "".join(f"{speed:12.1f}" for speed in speeds) + f"{self.ratio:9.3f}{self.spread:9.1%}"
        )


class Times:
    """Seconds per lane. Rounds go through all orders of the lanes: what a lane leaves in the caches helps or slows
    the next one, by up to 10 %."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {lane: [] for lane in LANES}
        self._round = 0

    def measure(self, work: dict[str, Callable[[], object]]) -> None:
        order = ORDERS[self._round % len(ORDERS)]
        self._round += 1
        for lane in order:
            start = time.perf_counter()
            work[lane]()
            self.seconds[lane].append(time.perf_counter() - start)


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
        times = Times()
        for _ in range(repetitions + 1):
            fresh = self.tokens(n)
            for engine in self.engines.values():
                self._submit(engine, fresh, 1)
            times.measure({lane: partial(_finish, engine) for lane, engine in self.engines.items()})
        return self._result(f"pp{n}", times, n_prompt=n, n_gen=0)

    def decode(self, n: int) -> Result:
        """Compute `n` tokens, one at a time; the first step reads the last token of the prompt."""
        times = Times()
        fresh = self.tokens(1)
        for engine in self.engines.values():
            self._submit(engine, fresh, n + 1)
        for _ in range(n + 1):
            times.measure({lane: engine.step for lane, engine in self.engines.items()})
        return self._result(f"tg{n}", times, n_prompt=0, n_gen=n)

    def _submit(self, engine: Engine, fresh: list[int], n_tokens: int) -> None:
        engine.submit(Request((*self.prefix, *fresh), GREEDY, max_tokens=n_tokens))

    def _result(self, test: str, times: Times, *, n_prompt: int, n_gen: int) -> Result:
        medians = {lane: statistics.median(values[1:]) for lane, values in times.seconds.items()}  # the first warms up
        low, _, high = statistics.quantiles(times.seconds["paged"][1:], n=4)
        depth = len(self.prefix)
        return Result(
            test=f"{test} @ d{depth}",
            n_prompt=n_prompt,
            n_gen=n_gen,
            n_depth=depth,
            paged_s=medians["paged"],
            flash_s=medians["flash"],
            no_flash_s=medians["no_flash"],
            spread=(high - low) / medians["paged"],
        )


def _ignore(_fraction: float) -> None:
    pass


def _finish(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--depths", default="0,512,2048,4096", help="Known tokens before each test.")
@click.option("--prompts", default="128,512", help="Tokens per prefill test.")
@click.option("--generate", default=64, help="Tokens per decode test.")
@click.option("--repetitions", default=6, help="Of each prefill test.")
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
        print(f"{'test':16}{'paged':>12}{'flash on':>12}{'flash off':>12}{'ratio':>9}{'spread':>9}")
    for depth in levels:
        bench.start(depth)
        for result in (bench.decode(generate), *(bench.prefill(n, repetitions) for n in lengths)):
            print(json.dumps(asdict(result) | {"ratio": result.ratio}) if as_json else result.row(), flush=True)


if __name__ == "__main__":
    main()
