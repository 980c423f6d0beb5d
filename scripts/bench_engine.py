"""Prefill and decode of the paged engine against llama.cpp, interleaved in one process.

Usage: python scripts/bench_engine.py [MODEL.gguf] [--depths 0,512,2048,4096] [--repetitions 3] [--json]

Tests are named as llama-bench names them: pp512 @ d2048 computes 512 tokens after 2,048 known ones, tg128 decodes 128
tokens one by one. The paged engine takes turns with the contiguous one, first with llama.cpp's flash attention on,
then off; the ratio is that to the faster setting. Both are timed through Engine.step, which includes greedy sampling.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

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
_M_MMAP_THRESHOLD = -3  # malloc.h

WARM_UP = 8
"""Decode steps that are not counted."""


@dataclass(frozen=True)
class Pair:
    """Medians in seconds of the paged lane and of one setting of llama.cpp, which took turns."""

    paged_s: float
    llama_s: float

    @property
    def ratio(self) -> float:
        """Above 1 we are faster."""
        return self.llama_s / self.paged_s


@dataclass(frozen=True)
class Test:
    """One row, named as llama-bench names it."""

    n_prompt: int
    n_gen: int
    n_depth: int

    @property
    def name(self) -> str:
        """Such as "pp512 @ d2048"."""
        return f"{f'pp{self.n_prompt}' if self.n_prompt else f'tg{self.n_gen}'} @ d{self.n_depth}"


class Bench:
    """The paged engine and one setting of llama.cpp over one model, taking turns at the same depth.

    Three lanes in turn would not do: what one leaves in the caches helps or slows the next, by up to 10 %.
    """

    def __init__(self, paged: PagedEngine, other: ContiguousEngine, n_vocab: int, depth: int) -> None:
        """Bring both, which hold nothing yet, to `depth` known tokens."""
        self.engines: tuple[Engine, Engine] = (paged, other)
        self.n_vocab = n_vocab
        self.random = np.random.default_rng(0)
        self.prefix = self.tokens(depth)
        for engine in self.engines:
            self._submit(engine, self.tokens(1), 1)
            _finish(engine)

    def tokens(self, n: int) -> list[int]:
        margin = self.n_vocab // 10  # control tokens are at the ends
        return [int(token) for token in self.random.integers(margin, self.n_vocab - margin, n)]

    def decode(self, n: int) -> list[tuple[float, float]]:
        """Compute `n` tokens, one at a time; seconds of both engines, step by step."""
        fresh = self.tokens(1)
        for engine in self.engines:
            self._submit(engine, fresh, n + WARM_UP + 1)
        seconds = [self._turn(lambda engine: engine.step(), number) for number in range(n + WARM_UP)]
        for engine in self.engines:
            _finish(engine)
        return seconds[WARM_UP:]

    def prefill(self, n: int, repetitions: int) -> list[tuple[float, float]]:
        """Compute `n` tokens after the known ones; seconds of both engines each time."""
        seconds = []
        for number in range(repetitions + 1):
            fresh = self.tokens(n)
            for engine in self.engines:
                self._submit(engine, fresh, 1)
            seconds.append(self._turn(_finish, number))
        return seconds[1:]

    def _turn(self, work: Callable[[Engine], object], number: int) -> tuple[float, float]:
        """Seconds of both engines; the other one begins every second time."""
        seconds = [0.0, 0.0]
        for lane in (0, 1) if number % 2 else (1, 0):
            start = time.perf_counter()
            work(self.engines[lane])
            seconds[lane] = time.perf_counter() - start
        return seconds[0], seconds[1]

    def _submit(self, engine: Engine, fresh: list[int], n_tokens: int) -> None:
        engine.submit(Request((*self.prefix, *fresh), GREEDY, max_tokens=n_tokens))


def _medians(seconds: list[tuple[float, float]]) -> Pair:
    paged, llama = (statistics.median(lane) for lane in zip(*seconds, strict=True))
    return Pair(paged, llama)


def _even_alignment() -> None:
    """Let glibc map every large buffer, so that ggml's work buffers start alike in both engines.

    From the heap they start at any multiple of 16 bytes, which made either engine up to 20 % faster by chance.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 65536)


def _load(path: str, config: EngineConfig, *, flash: bool, paged_first: bool) -> tuple[PagedEngine, ContiguousEngine]:
    """Both engines, created in the given order."""
    if paged_first:
        paged = PagedEngine(path, config, _ignore)
        return paged, ContiguousEngine(path, config, _ignore, flash=flash)
    other = ContiguousEngine(path, config, _ignore, flash=flash)
    return PagedEngine(path, config, _ignore), other


def _row(test: Test, pairs: list[Pair]) -> str:
    """One line of the table; speeds in tokens per second."""
    n = test.n_prompt or 1
    cells = [f"{n / pair.paged_s:10.1f}{n / pair.llama_s:10.1f}" for pair in pairs]
    return f"{test.name:16}{cells[0]}   {cells[1]}{min(pair.ratio for pair in pairs):9.3f}"


def _ignore(_fraction: float) -> None:
    pass


def _finish(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--depths", default="0,512,2048,4096", help="Known tokens before each test.")
@click.option("--prompts", default="128,512", help="Tokens per prefill test.")
@click.option("--generate", default=128, help="Tokens per decode test.")
@click.option("--repetitions", default=3, help="Of each prefill test, with the engines loaded in either order.")
@click.option("--threads", default=usable_cores(), help="CPU threads of all lanes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per test.")
def main(
    model: str | None, depths: str, prompts: str, generate: int, repetitions: int, threads: int, as_json: bool
) -> None:
    _even_alignment()
    path = str(locate(model))
    levels = [int(depth) for depth in depths.split(",")]
    lengths = [int(length) for length in prompts.split(",")]
    n_vocab = ModelPlan.from_gguf(GgufFile.open(path)).vocabulary
    context = max(levels) + max(*lengths, generate + WARM_UP) + 64
    config = EngineConfig(context=context, threads=threads, device="CPU")
    print(f"{path}, {threads} threads; tokens per second; ratio to llama.cpp's better setting", file=sys.stderr)
    if not as_json:
        print(f"{'test':16}{'paged':>10}{'flash on':>10}   {'paged':>10}{'flash off':>10}{'ratio':>9}")
    for depth in levels:
        tests = [Test(0, generate, depth), *(Test(n, 0, depth) for n in lengths)]
        pairs: dict[Test, list[Pair]] = {test: [] for test in tests}
        for flash in (True, False):
            seconds: dict[Test, list[tuple[float, float]]] = {test: [] for test in tests}
            for paged_first in (True, False):
                paged, other = _load(path, config, flash=flash, paged_first=paged_first)
                bench = Bench(paged, other, n_vocab, depth)
                for test in tests:
                    seconds[test] += (
                        bench.prefill(test.n_prompt, repetitions) if test.n_prompt else bench.decode(test.n_gen)
                    )
                paged.close()
                other.close()
            for test in tests:
                pairs[test].append(_medians(seconds[test]))
        for test in tests:
            on, off = pairs[test]
            record = asdict(test) | {"flash": asdict(on), "no_flash": asdict(off), "ratio": min(on.ratio, off.ratio)}
            print(json.dumps(record) if as_json else _row(test, pairs[test]), flush=True)


if __name__ == "__main__":
    main()
