"""Decode steps while other programs use the cores: how much slower, and how slow the slowest.

Usage: python scripts/busy_cores.py [MODEL.gguf] [--busy 0,1,2] [--steps 32] [--rounds 4]

The paged engine runs in the environment of Octavo's worker; llama.cpp runs as it ships, and with the worker's setting
of GNU OpenMP (GOMP_SPINCOUNT). Each lane is a process of its own; they take turns, while so many other processes
count in a loop. In brackets: times the median of the same lane with none.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import NamedTuple

import click

from models.locate import locate

N_PROMPT = 128
LONGEST_TURN_S = 4.0
"""A turn ends early after so many seconds: there are settings with which a single step takes one."""


class Setup(NamedTuple):
    """A lane: which engine, GOMP_SPINCOUNT in its environment (None: unset, as llama.cpp ships), and threads."""

    name: str
    is_paged: bool
    spin_count: int | None
    threads: int | None = None


SETUPS = (Setup("paged", True, 1000), Setup("llama.cpp", False, None), Setup("llama.cpp, 1000", False, 1000))


class Lane:
    """An engine in a process of its own, which decodes when it is asked to."""

    def __init__(self, setup: Setup, path: str, n_tokens: int) -> None:
        """Start the process and wait until the model is loaded. n_tokens: that it will decode at most."""
        os.environ.pop("GOMP_SPINCOUNT", None)
        if setup.spin_count is not None:
            os.environ["GOMP_SPINCOUNT"] = str(setup.spin_count)
        spawn = multiprocessing.get_context("spawn")
        self._connection, other_end = spawn.Pipe()
        self._process = spawn.Process(target=serve, args=(other_end, setup, path, n_tokens), daemon=True)
        self._process.start()
        other_end.close()
        self._connection.recv()

    def decode(self, n: int) -> list[float]:
        """Milliseconds of each of `n` steps."""
        self._connection.send(n)
        return list(self._connection.recv())

    def close(self) -> None:
        self._connection.send(0)
        self._process.join()


def serve(connection: Connection, setup: Setup, path: str, n_tokens: int) -> None:
    """What a lane's process does. Imports wait for it, because OpenMP reads its settings when it is loaded."""
    import llama_cpp  # noqa: F401, PLC0415 - before the engine, which sets what is unset

    from engine.config import EngineConfig  # noqa: PLC0415
    from engine.contiguous import ContiguousEngine  # noqa: PLC0415
    from engine.paged import PagedEngine  # noqa: PLC0415
    from engine.sequence import Request, SamplingParams  # noqa: PLC0415

    config = EngineConfig(context=N_PROMPT + n_tokens + 1, threads=setup.threads, device="CPU")
    engine = (
        PagedEngine(path, config, lambda _fraction: None, speculate=False)
        if setup.is_paged
        else ContiguousEngine(path, config, lambda _fraction: None)
    )
    engine.submit(Request(tuple(range(1000, 1000 + N_PROMPT)), SamplingParams(temperature=0), n_tokens))
    engine.step()
    connection.send(None)
    while n := connection.recv():
        milliseconds: list[float] = []
        while len(milliseconds) < n and sum(milliseconds) < LONGEST_TURN_S * 1000:
            start = time.perf_counter()
            engine.step()
            milliseconds.append((time.perf_counter() - start) * 1000)
        connection.send(milliseconds)
    engine.close()


@contextlib.contextmanager
def busy_processes(n: int) -> Iterator[None]:
    """Keep `n` processes counting inside the block."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--busy", default="0,1,2", help="Numbers of busy processes.")
@click.option("--steps", default=32, help="Decode steps of a turn.")
@click.option("--rounds", default=4, help="Turns of each lane.")
def main(model: str | None, busy: str, steps: int, rounds: int) -> None:
    path = str(locate(model))
    levels = [int(number) for number in busy.split(",")]
    lanes = {setup.name: Lane(setup, path, 2 + steps * rounds * len(levels)) for setup in SETUPS}
    print(f"{'lane':18}{'busy':>6}{'median ms':>18}{'worst ms':>18}")
    idle: dict[str, float] = {}
    for n_busy in levels:
        times: dict[str, list[float]] = {name: [] for name in lanes}
        with busy_processes(n_busy):
            for _ in range(rounds):
                for name, lane in lanes.items():
                    times[name] += lane.decode(steps)
        for name, milliseconds in times.items():
            median, worst = statistics.median(milliseconds), max(milliseconds)
            base = idle.setdefault(name, median)
            cells = "".join(f"{f'{value:.1f} ({value / base:.1f}x)':>18}" for value in (median, worst))
            print(f"{name:18}{n_busy:6}{cells}", flush=True)
    for lane in lanes.values():
        lane.close()


if __name__ == "__main__":
    main()
