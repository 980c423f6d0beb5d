"""Time that a decode step spends outside the graph's computation: scheduling, inputs, graphs, sampling.

Usage: python scripts/step_overhead.py [MODEL.gguf] [--steps 256] [--batches 1,8]

Prints medians and the 99th percentile, in milliseconds; a graph is rebuilt every 64 tokens of a sequence.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import click

from engine import ggml
from engine.config import EngineConfig
from engine.paged import PagedEngine
from engine.sequence import Request, SamplingParams
from models.locate import locate


class ComputeClock:
    """Stands in for ggml's compute call and adds up the time spent in it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._compute = ggml.graph_compute
        ggml.graph_compute = self

    def __call__(self, *arguments: Any) -> Any:
        start = time.perf_counter()
        status = self._compute(*arguments)
        self.seconds += time.perf_counter() - start
        return status


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--steps", default=256, help="Decode steps per batch size.")
@click.option("--batches", default="1,8", help="Sequences decoding together.")
def main(model: str | None, steps: int, batches: str) -> None:
    config = EngineConfig(context=2048, device="CPU")
    engine = PagedEngine(str(locate(model)), config, lambda _fraction: None, speculate=False)
    clock = ComputeClock()
    for n_sequences in map(int, batches.split(",")):
        for number in range(n_sequences):
            prompt = tuple(range(1000 * number + 100, 1000 * number + 164))
            engine.submit(Request(prompt, SamplingParams(temperature=0), max_tokens=steps + 2))
        engine.step()
        outside, inside = [], []
        while engine.has_work():
            clock.seconds = 0.0
            start = time.perf_counter()
            engine.step()
            total = time.perf_counter() - start
            outside.append((total - clock.seconds) * 1e3)
            inside.append(clock.seconds * 1e3)
        p99 = statistics.quantiles(outside, n=100)[-1]
        print(
            f"{n_sequences} sequence(s): outside {statistics.median(outside):.3f} ms (mean "
            f"{statistics.mean(outside):.3f}, p99 {p99:.3f}), graph {statistics.median(inside):.2f} ms"
        )
    engine.close()


if __name__ == "__main__":
    main()
