"""Decode of several sequences together, the paged engine against llama.cpp, in turns in one process.

Usage: python scripts/bench_batch.py [MODEL.gguf] [--sequences 8] [--apart 512] [--shared 2048] [--loads 4] [--json]

"8 x 512" decodes 8 sequences with 512 known tokens each; "8 sharing 2048" decodes 8 that begin with the same 2,048
tokens and go on with different ones. The known tokens are put in place, with random K and V. llama.cpp runs with a
cache that all sequences share ("unified") or one for each ("split"), and with flash attention ("fa") or without; only
a unified cache stores a shared prefix once. "best" is the ratio to its fastest mode. Both engines draw each
sequence's next token greedily with llama.cpp's sampler.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import click
import numpy as np
from comparison import BandwidthProbe, Load, Order, Row, Seconds, decode_bytes, fastest_turns, header, line, time_steps
from known_tokens import KnownTokens, empty_pool, place_in_context, place_in_pool, random_ids, random_known

from engine.config import EngineConfig
from engine.gguf_file import GgufFile
from engine.llama_batch import LlamaBatch
from engine.native import llama
from engine.paged import PagedEngine
from engine.plan import ModelPlan
from engine.sequence import Request, SamplingParams
from engine.threads import usable_cores
from models.locate import locate

GREEDY = SamplingParams(temperature=0)
WARM_UP, TURN, TURNS = 4, 32, 2
N_STEPS = WARM_UP + TURNS * (TURN + 1)
"""Decode steps before the first turn, of a turn, and turns per load; the paged engine makes a new graph every 64."""


class Mode(NamedTuple):
    """How llama.cpp keeps the sequences."""

    unified: bool
    flash: bool

    @property
    def name(self) -> str:
        return f"{'unified' if self.unified else 'split'}{', fa' if self.flash else ''}"


class Scene(NamedTuple):
    """Sequences to decode. known: of each, or the one that all share. fresh: one more token of each sequence."""

    known: list[KnownTokens]
    fresh: list[int]


class PagedLane:
    """The paged engine, decoding all sequences in each step."""

    def __init__(self, path: str, config: EngineConfig) -> None:
        self.engine = PagedEngine(path, config, lambda _fraction: None, speculate=False)
        self.step = self.engine.step

    def enter(self, scene: Scene) -> None:
        """Forget everything, and start the sequences of a scene."""
        empty_pool(self.engine)
        for known in scene.known:
            place_in_pool(self.engine, known)
        for i, token in enumerate(scene.fresh):
            ids = scene.known[i % len(scene.known)].ids
            self.engine.submit(Request((*ids, token), GREEDY, N_STEPS + 1))

    def leave(self) -> None:
        while self.engine.has_work():
            self.engine.step()

    def close(self) -> None:
        self.engine.close()


class LlamaLane:
    """llama.cpp, decoding all sequences with one llama_decode per step."""

    def __init__(self, path: str, config: EngineConfig, mode: Mode, n_sequences: int) -> None:
        """config.context: tokens that the cache holds, all sequences together."""
        self.mode = mode
        config = replace(config, flash=mode.flash)
        self._batch = LlamaBatch(path, config, lambda _fraction: None, n_sequences=n_sequences, unified=mode.unified)
        self.step = self._batch.step

    def enter(self, scene: Scene) -> None:
        """Forget everything, and start the sequences of a scene."""
        self._batch.forget()
        memory = llama.llama_get_memory(self._batch.context)
        is_shared = len(scene.known) < len(scene.fresh)
        for i in range(len(scene.fresh)):
            known = scene.known[i % len(scene.known)]
            if self.mode.unified and is_shared and i:
                llama.llama_memory_seq_cp(memory, 0, i, -1, -1)
            else:
                place_in_context(self._batch.context, known, sequence_id=i, flash=self.mode.flash)
        self._batch.start(scene.fresh, len(scene.known[0]))

    def leave(self) -> None:
        """Nothing to do: `enter` forgets."""

    def close(self) -> None:
        self._batch.close()


def measure(lanes: tuple[PagedLane, LlamaLane], scene: Scene, order: Order) -> Seconds:
    """Seconds per step."""
    for lane in lanes:
        lane.enter(scene)
        for _ in range(WARM_UP):
            lane.step()
    works = (partial(time_steps, lanes[0].step, TURN), partial(time_steps, lanes[1].step, TURN))
    seconds = fastest_turns(works, order, TURNS)
    for lane in lanes:
        lane.leave()
    return seconds


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--sequences", default=8, help="Decoded together.")
@click.option("--apart", default=512, help="Known tokens of each sequence that shares none.")
@click.option("--shared", default=2048, help="Known tokens that all share.")
@click.option("--loads", default=4, help="Of each pair of engines: 4 see all orders of loading and of taking turns.")
@click.option("--threads", default=usable_cores(), help="CPU threads of both engines.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per test.")
def main(model: str | None, sequences: int, apart: int, shared: int, loads: int, threads: int, as_json: bool) -> None:
    path = str(locate(model))
    file = GgufFile.open(path)
    plan = ModelPlan.from_gguf(file)
    rows = [
        Row(f"{sequences} x {apart}", sequences, decode_bytes(file, plan, sequences * apart)),
        Row(f"{sequences} sharing {shared}", sequences, decode_bytes(file, plan, shared)),
    ]
    modes = [Mode(unified, flash) for unified in (True, False) for flash in (True, False)]
    config = EngineConfig(context=max(apart, shared) + N_STEPS + 64, threads=threads, device="CPU")
    n_cells = sequences * config.context
    probe = BandwidthProbe(threads)
    for load in range(loads):
        order = Order(load)
        random = np.random.default_rng(load)
        fresh = list(random_ids(sequences, plan, random))
        scenes = [
            Scene([random_known(apart, plan, random) for _ in range(sequences)], fresh),
            Scene([random_known(shared, plan, random)], fresh),
        ]
        for mode in modes:
            make_llama = partial(LlamaLane, path, replace(config, context=n_cells), mode, sequences)
            if order.loads_paged_first:
                paged = PagedLane(path, config)
                other = make_llama()
            else:
                other = make_llama()
                paged = PagedLane(path, config)
            for row, scene in zip(rows, scenes, strict=True):
                bandwidth = probe.measure()
                row.add(mode.name, Load(measure((paged, other), scene, order), bandwidth))
            paged.close()
            other.close()
        print(f"load {load + 1} of {loads} done", file=sys.stderr)
    if not as_json:
        print(f"{path}, {threads} threads; tokens per second of all sequences together")
        print(header([mode.name for mode in modes]))
    for row in rows:
        print(json.dumps(row.record()) if as_json else line(row))


if __name__ == "__main__":
    main()
