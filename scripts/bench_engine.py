"""Prefill and decode of the paged engine against llama.cpp, in turns in one process.

Usage: python scripts/bench_engine.py [MODEL.gguf] [--depths 0,512,2048,4096,8000] [--prompts 128,512] [--loads 4]

Tests are named as llama-bench names them: pp512 @ d2048 computes 512 tokens after 2,048 known ones, tg64 @ d2048
decodes 64 tokens one by one. The known tokens are put in place, with random K and V. The contiguous engine runs with
llama.cpp's flash attention on, and off; "best" is the ratio to the faster setting. Both engines are timed through
Engine.step, which includes greedy sampling; prompt lookup is off. "bandwidth" is the weights and the KV that a decode
reads, times tokens per second, over what this machine could read just before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np
from comparison import BandwidthProbe, Load, Order, Row, Seconds, decode_bytes, fastest_turns, header, line, time_steps
from known_tokens import KnownTokens, empty_pool, place_in_contiguous, place_in_pool, random_ids, random_known

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

SETTINGS = {"flash on": True, "flash off": False}

WARM_UP = 4
"""Decode steps before the first turn."""

TURN = 32
"""Decode steps of a turn: the paged engine makes a new graph once in so many."""


class Pair:
    """The paged engine and one setting of llama.cpp over one model."""

    def __init__(self, path: str, config: EngineConfig, plan: ModelPlan, *, flash: bool, order: Order) -> None:
        """Load both."""
        self.plan = plan
        self.flash = flash
        self.order = order
        self.random = np.random.default_rng(order.load)
        if order.loads_paged_first:
            self.paged = PagedEngine(path, config, _ignore, speculate=False)
        self.contiguous = ContiguousEngine(path, config, _ignore, flash=flash)
        if not order.loads_paged_first:
            self.paged = PagedEngine(path, config, _ignore, speculate=False)

    def decode(self, n: int, depth: int) -> Seconds:
        """Seconds per token of `n` tokens computed one at a time."""
        known, fresh = self._tokens(depth), self._fresh(1)
        n_turns = -(-n // TURN)
        n_steps = WARM_UP + n_turns * (TURN + 1)
        for lane in (0, 1):
            self._submit(lane, known, fresh, n_steps + 1)
        for engine in self._engines:
            for _ in range(WARM_UP):
                engine.step()
        steps = [partial(time_steps, engine.step, TURN) for engine in self._engines]
        seconds = fastest_turns((steps[0], steps[1]), self.order, n_turns)
        for engine in self._engines:
            _finish(engine)
        return seconds

    def prefill(self, n: int, depth: int, repetitions: int) -> Seconds:
        """Seconds for `n` tokens after the known ones; all are others, in the same place, each time."""

        def work(lane: int) -> float:
            self._submit(lane, self._tokens(depth), self._fresh(n), 1)
            start = time.perf_counter()
            _finish(self._engines[lane])
            return time.perf_counter() - start

        return fastest_turns((partial(work, 0), partial(work, 1)), self.order, repetitions)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    @property
    def _engines(self) -> tuple[PagedEngine, ContiguousEngine]:
        return self.paged, self.contiguous

    def _tokens(self, n: int) -> KnownTokens:
        return random_known(n, self.plan, self.random)

    def _fresh(self, n: int) -> tuple[int, ...]:
        return random_ids(n, self.plan, self.random)

    def _submit(self, lane: int, known: KnownTokens, fresh: tuple[int, ...], max_tokens: int) -> None:
        """Empty a lane's cache, put the known tokens there, and let `fresh` follow them."""
        if lane == 0:
            empty_pool(self.paged)
            place_in_pool(self.paged, known)
        else:
            place_in_contiguous(self.contiguous, known, flash=self.flash)
        self._engines[lane].submit(Request((*known.ids, *fresh), GREEDY, max_tokens))


def _finish(engine: Engine) -> None:
    while engine.has_work():
        engine.step()


def _ignore(_fraction: float) -> None:
    pass


def _numbers(_context: click.Context, _option: click.Parameter, value: str) -> list[int]:
    return [int(number) for number in value.split(",") if number]


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--depths", default="0,512,2048,4096,8000", callback=_numbers, help="Known tokens before a decode.")
@click.option("--prompts", default="128,512", callback=_numbers, help="Tokens per prefill.")
@click.option("--prompt-depths", default="0,2048,4096", callback=_numbers, help="Known tokens before a prefill.")
@click.option("--generate", default=64, help="Tokens per decode.")
@click.option("--repetitions", default=1, help="Of each prefill, per load.")
@click.option("--loads", default=4, help="Of each pair of engines: 4 see all orders of loading and of taking turns.")
@click.option("--threads", default=usable_cores(), help="CPU threads of both engines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per test.")
def main(
    model: str | None,
    depths: list[int],
    prompts: list[int],
    prompt_depths: list[int],
    generate: int,
    repetitions: int,
    loads: int,
    threads: int,
    as_json: bool,
) -> None:
    path = str(locate(model))
    file = GgufFile.open(path)
    plan = ModelPlan.from_gguf(file)
    n_steps = WARM_UP + (generate // TURN + 1) * (TURN + 1)
    longest = max([depth + n_steps for depth in depths] + [depth + n for depth in prompt_depths for n in prompts])
    config = EngineConfig(context=longest + 64, threads=threads, device="CPU")

    tests: list[tuple[Row, Callable[[Pair], Seconds]]] = []
    for depth in depths:
        row = Row(f"tg{generate} @ d{depth}", 1, decode_bytes(file, plan, depth))
        tests.append((row, lambda pair, depth=depth: pair.decode(generate, depth)))
    for depth in prompt_depths:
        for n in prompts:
            row = Row(f"pp{n} @ d{depth}", n)
            tests.append((row, lambda pair, n=n, depth=depth: pair.prefill(n, depth, repetitions)))

    probe = BandwidthProbe(threads)
    for load in range(loads):
        for setting, flash in SETTINGS.items():
            pair = Pair(path, config, plan, flash=flash, order=Order(load))
            if prompts and prompt_depths:
                pair.prefill(max(prompts), 0, 1)  # buffers are touched for the first time
            for row, measure in tests:
                bandwidth = probe.measure()
                row.add(setting, Load(measure(pair), bandwidth))
            pair.close()
        print(f"load {load + 1} of {loads} done", file=sys.stderr)
    if not as_json:
        print(f"{path}, {threads} threads; tokens per second")
        print(header(list(SETTINGS)))
    for row, _ in tests:
        print(json.dumps(row.record()) if as_json else line(row))


if __name__ == "__main__":
    main()
