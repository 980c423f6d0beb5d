"""Times of two engines that take turns, ratios per load, and the table of what they come to.

Whatever else the machine does slows the engines down, and not alike: of an engine's turns the fastest counts. Where its
memory happens to lie makes it some per cent faster or slower from one load to the next: both are loaded several times,
in either order, each load gives one ratio, and a row of the table is their median.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from engine.config import KvType
from engine.gguf_file import GgufFile
from engine.kv_pool import bytes_per_slot
from engine.kv_types import KvTypes
from engine.plan import ModelPlan

_READ_BYTES = 2**28
"""More than caches hold."""


class Seconds(NamedTuple):
    """Of the same work, by the paged engine and by llama.cpp."""

    paged: float
    llama: float

    @property
    def ratio(self) -> float:
        """Above 1 the paged engine is faster."""
        return self.llama / self.paged


class Order(NamedTuple):
    """Who is loaded first, and who begins: all four combinations after four loads."""

    load: int

    @property
    def loads_paged_first(self) -> bool:
        return self.load % 2 == 0

    def lanes(self, turn: int) -> tuple[int, int]:
        """The lanes (0 is paged, 1 is llama.cpp) in the order of a turn; it is reversed from turn to turn."""
        return (0, 1) if (self.load // 2 + turn) % 2 == 0 else (1, 0)


def fastest_turns(works: tuple[Callable[[], float], Callable[[], float]], order: Order, n_turns: int) -> Seconds:
    """Let both lanes take turns at their work, which returns the seconds that count; of each lane the fastest turn."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(n_turns):
        for lane in order.lanes(turn):
            seconds[lane].append(works[lane]())
    return Seconds(min(seconds[0]), min(seconds[1]))


def time_steps(step: Callable[[], object], n: int) -> float:
    """Mean seconds of `n` steps after one that does not count: the caches are full of what the other lane has read."""
    step()
    start = time.perf_counter()
    for _ in range(n):
        step()
    return (time.perf_counter() - start) / n


class Load(NamedTuple):
    """What one load of a pair gave. bandwidth: bytes per second that the machine could read just before."""

    seconds: Seconds
    bandwidth: float


@dataclass
class Row:
    """One test. n_tokens: that the measured work computes. n_bytes: that it reads at least, None for a prefill.

    loads: by setting of llama.cpp.
    """

    name: str
    n_tokens: int
    n_bytes: int | None = None
    loads: dict[str, list[Load]] = field(default_factory=dict)

    def add(self, setting: str, load: Load) -> None:
        self.loads.setdefault(setting, []).append(load)

    def ratios(self, setting: str) -> list[float]:
        """One per load."""
        return [load.seconds.ratio for load in self.loads[setting]]

    @property
    def best_setting(self) -> str:
        """The setting of llama.cpp that is fastest."""
        return min(self.loads, key=lambda setting: statistics.median(self.ratios(setting)))

    @property
    def ratio(self) -> float:
        """To llama.cpp's best setting."""
        return statistics.median(self.ratios(self.best_setting))

    @property
    def paged_speed(self) -> float:
        """Tokens per second."""
        loads = [load for loads in self.loads.values() for load in loads]
        return self.n_tokens / statistics.median(load.seconds.paged for load in loads)

    def llama_speed(self, setting: str) -> float:
        """Tokens per second."""
        return self.n_tokens / statistics.median(load.seconds.llama for load in self.loads[setting])

    @property
    def bandwidth_fraction(self) -> float | None:
        """Bytes read per second by the paged engine, over what the machine could read."""
        if self.n_bytes is None:
            return None
        loads = [load for loads in self.loads.values() for load in loads]
        return statistics.median(self.n_bytes / load.seconds.paged / load.bandwidth for load in loads)

    def record(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "test": self.name,
            "paged_tokens_per_s": self.paged_speed,
            "best_setting": self.best_setting,
            "ratio": self.ratio,
            "bandwidth_fraction": self.bandwidth_fraction,
            "loads": {
                setting: [load.seconds._asdict() | {"bandwidth": load.bandwidth} for load in loads]
                for setting, loads in self.loads.items()
            },
        }


def header(settings: list[str]) -> str:
    columns = "".join(f"{setting:>18}{'ratio (least–most)':>21}" for setting in settings)
    return f"{'test':18}{'paged':>8}{columns}{'best':>8}{'bandwidth':>11}"


def line(row: Row) -> str:
    """One line of the table; speeds in tokens per second."""
    cells = f"{row.name:18}{row.paged_speed:8.1f}"
    for setting in row.loads:
        ratios = row.ratios(setting)
        spread = f"{statistics.median(ratios):.3f} ({min(ratios):.2f}–{max(ratios):.2f})"
        cells += f"{row.llama_speed(setting):18.1f}{spread:>21}"
    fraction = "" if row.bandwidth_fraction is None else f"{row.bandwidth_fraction:11.1%}"
    return f"{cells}{row.ratio:8.3f}{fraction}"


def decode_bytes(file: GgufFile, plan: ModelPlan, n_known: int) -> int:
    """Bytes that one decode step reads at least: each weight once (of untied embeddings a row), and KV in F16.

    n_known: tokens before, over all sequences, shared ones counted once.
    """
    weights = sum(tensor.n_bytes for tensor in file.tensors.values())
    if not plan.tied:
        weights -= file.tensors[plan.token_embedding].n_bytes
    return weights + n_known * bytes_per_slot(plan.kv_groups, KvTypes(KvType.F16, KvType.F16))


class BandwidthProbe:
    """Measures how fast threads read memory together.

    A virtual machine's processors may share a last-level cache one second and not the next: then they read almost
    twice as fast together, but every barrier takes longer, and ratios are others. The JSON has the figure per load.
    """

    def __init__(self, n_threads: int) -> None:
        self._shares = np.array_split(np.ones(_READ_BYTES // 8, np.int64), n_threads)

    def measure(self) -> float:
        """Bytes per second, the best of three passes.

        Each thread combines its share with bitwise or, for which numpy uses vector instructions and lets go of its
        lock.
        """
        best = 0.0
        for _ in range(3):
            readers = [threading.Thread(target=np.bitwise_or.reduce, args=(share,)) for share in self._shares]
            start = time.perf_counter()
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            best = max(best, _READ_BYTES / (time.perf_counter() - start))
        return best
