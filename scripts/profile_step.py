"""Where the time of a step goes: milliseconds by operation, of the paged engine and of llama.cpp.

Usage: python scripts/profile_step.py [MODEL.gguf] [--depth 2048] [--tokens 1] [--steps 16] [--flash/--no-flash]

A step computes --tokens tokens (1 is a decode) after --depth known ones, which are put in place with random K and V.
The clock is ggml's abort callback, which the first thread calls after every node: what it waits at a barrier for the
others counts to the node after. A call takes about a microsecond, so all nodes take more than a step without the clock.
Matrix products are named by type and shape of their first factor: a weight, or K or V.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numpy as np
from known_tokens import KnownTokens, empty_pool, place_in_contiguous, place_in_pool, random_ids, random_known

from engine import ggml
from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.gguf_file import GgufFile
from engine.native import library, llama
from engine.paged import PagedEngine
from engine.plan import ModelPlan
from engine.sequence import Request, SamplingParams
from engine.threads import usable_cores
from models.locate import locate

GREEDY = SamplingParams(temperature=0)
ROUNDS = 5
"""Turns that both engines take; the fastest of each is shown."""

_SKIPPED = {b"NONE", b"RESHAPE", b"VIEW", b"PERMUTE", b"TRANSPOSE"}
"""Operations that only describe memory."""

_op_name = library.ggml_op_name
_op_name.restype, _op_name.argtypes = ctypes.c_char_p, (ctypes.c_int,)
_n_nodes = library.ggml_graph_n_nodes
_n_nodes.restype, _n_nodes.argtypes = ctypes.c_int, (ctypes.c_void_p,)
_node = library.ggml_graph_node
_node.restype, _node.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)


class TensorNode(ctypes.Structure):
    """The first fields of struct ggml_tensor, up to its first two sources."""

    _fields_ = (
        *ggml.TensorHead._fields_,
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 2),
    )


class Named(NamedTuple):
    """A node that the CPU computes."""

    operation: bytes
    label: str


def named(tensor: int) -> Named:
    node = TensorNode.from_address(tensor)
    operation = _op_name(node.op)
    label = operation.decode().lower()
    if operation == b"MUL_MAT":
        weight = ggml.head(node.src[0])
        shape = ", ".join(str(n) for n in weight.ne if n > 1)
        label += f" {ggml.type_name(weight.type).decode()} [{shape}]"
    return Named(operation, label)


class NodeClock:
    """Adds up the time of each kind of node over graphs whose nodes it is told in order."""

    def __init__(self) -> None:
        self._ticks: list[int] = []
        self.callback = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(self.tick)
        self.clear()

    def clear(self) -> None:
        self.nanoseconds: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def begin(self) -> None:
        """A graph is about to be computed."""
        self._ticks[:] = [time.perf_counter_ns()]

    def tick(self, _data: int | None) -> bool:
        """A node was computed."""
        self._ticks.append(time.perf_counter_ns())
        return False

    def end(self, tensors: list[int]) -> None:
        """The graph of these nodes was computed."""
        nodes = [node for node in map(named, tensors) if node.operation not in _SKIPPED]
        # The CPU computes a norm and the product with its weights, which follows, as one node.
        fused = [
            node
            for before, node in zip([None, *nodes], nodes, strict=False)
            if not (before and before.operation == b"RMS_NORM" and node.operation == b"MUL")
        ]
        assert len(fused) == len(self._ticks) - 1, (len(fused), len(self._ticks) - 1)
        for node, start, stop in zip(fused, self._ticks, self._ticks[1:], strict=False):
            self.nanoseconds[node.label] += stop - start
            self.calls[node.label] += 1


class WatchedPaged:
    """The paged engine, all of whose graphs the clock sees."""

    def __init__(self, path: str, config: EngineConfig, clock: NodeClock) -> None:
        self.engine = PagedEngine(path, config, lambda _fraction: None, speculate=False)
        self._clock = clock
        self._compute = ggml.graph_compute
        ggml.graph_compute = self._compute_watched

    def enter(self, known: KnownTokens) -> None:
        empty_pool(self.engine)
        place_in_pool(self.engine, known)

    def step(self) -> None:
        self.engine.step()

    def _compute_watched(self, graph: int, plan: Any) -> Any:
        plan._obj.abort_callback = ctypes.cast(self._clock.callback, ctypes.c_void_p)
        self._clock.begin()
        status = self._compute(graph, plan)
        self._clock.end([_node(graph, i) for i in range(_n_nodes(graph))])
        return status


class WatchedContiguous:
    """llama.cpp, all of whose graphs the clock sees.

    It keeps its graph to itself, but asks an evaluation callback about every node before it computes them.
    """

    def __init__(self, path: str, config: EngineConfig, clock: NodeClock, *, flash: bool) -> None:
        self._clock = clock
        self._flash = flash
        self._nodes: list[int] = []
        self._on_node = llama.ggml_backend_sched_eval_callback(self._take_note)
        self._on_tick = llama.ggml_abort_callback(clock.tick)
        default_params = llama.llama_context_default_params
        llama.llama_context_default_params = self._params(default_params)
        self.engine = ContiguousEngine(path, config, lambda _fraction: None, flash=flash)
        llama.llama_context_default_params = default_params
        llama.llama_set_abort_callback(self.engine._llama._context, self._on_tick, None)

    def enter(self, known: KnownTokens) -> None:
        place_in_contiguous(self.engine, known, flash=self._flash)

    def step(self) -> None:
        self._nodes.clear()
        self.engine.step()
        self._clock.end(self._nodes)

    def _params(self, default_params: Callable[[], Any]) -> Callable[[], Any]:
        def params_with_callback() -> Any:
            params = default_params()
            params.cb_eval = self._on_node
            return params

        return params_with_callback

    def _take_note(self, tensor: int, _is_question: bool, _data: int | None) -> bool:
        self._nodes.append(tensor)
        self._clock.begin()
        return False


def run(lane: WatchedPaged | WatchedContiguous, plan: ModelPlan, depth: int, n_tokens: int, n_steps: int) -> None:
    """Compute `n_steps` steps of `n_tokens` tokens after `depth` known ones."""
    random = np.random.default_rng(0)
    n_requests, n_answer = (1, n_steps) if n_tokens == 1 else (n_steps, 1)
    for _ in range(n_requests):
        known = random_known(depth, plan, random)
        lane.enter(known)
        lane.engine.submit(Request((*known.ids, *random_ids(n_tokens, plan, random)), GREEDY, n_answer))
        while lane.engine.has_work():
            lane.step()


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--depth", default=2048, help="Known tokens.")
@click.option("--tokens", default=1, help="Per step, at most 512.")
@click.option("--steps", default=16, help="Of a round.")
@click.option("--flash/--no-flash", default=True, help="Of llama.cpp.")
@click.option("--threads", default=usable_cores(), help="CPU threads of both engines.")
def main(model: str | None, depth: int, tokens: int, steps: int, flash: bool, threads: int) -> None:
    path = str(locate(model))
    plan = ModelPlan.from_gguf(GgufFile.open(path))
    config = EngineConfig(context=depth + tokens + steps + 64, threads=threads, device="CPU")
    clock = NodeClock()
    lanes = {
        "paged": WatchedPaged(path, config, clock),
        f"llama.cpp, flash attention {'on' if flash else 'off'}": WatchedContiguous(path, config, clock, flash=flash),
    }
    profiles: dict[str, list[Counter[str]]] = {name: [] for name in lanes}
    calls: dict[str, Counter[str]] = {}
    for _ in range(ROUNDS):
        for name, lane in lanes.items():
            clock.clear()
            run(lane, plan, depth, tokens, steps)
            profiles[name].append(clock.nanoseconds)
            calls[name] = clock.calls
    for name, lane in lanes.items():
        fastest = min(profiles[name], key=Counter.total)
        print(f"{name}: {fastest.total() / steps / 1e6:.2f} ms in all nodes")
        for label, nanoseconds in fastest.most_common():
            n_calls = calls[name][label] / steps
            print(f"  {label:36}{n_calls:7.0f}x{nanoseconds / steps / 1e6:9.3f} ms{nanoseconds / fastest.total():8.1%}")
        lane.engine.close()


if __name__ == "__main__":
    main()
