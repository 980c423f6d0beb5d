"""What graphs take: the memory of those that are kept, and the room for their nodes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from engine import forward, ggml, graph
from engine.attention_choice import AttentionChoice
from engine.batch import Batch, Reading, Segment, write_spans
from engine.blocks import BLOCK_SIZE, Run
from engine.devices import cpu_device
from engine.gguf_file import GgufFile
from engine.kv_pool import KvLayout, KvPool
from engine.plan import ModelPlan
from engine.shared_prefix import Reader, shared_prefixes
from engine.weights import Weights
from tests.engine.recording import RecordingEngine

_used_memory = ggml._declare("used_mem", ggml._Size, ggml._Pointer)

N_PAIRS = 8


def live_bytes(engine: RecordingEngine) -> list[int]:
    """Memory of each graph that is kept, the latest last."""
    return [live.program.n_bytes for live in engine._forward._live.values()]


def answer_short_prompts(path: Path) -> RecordingEngine:
    """Prompts of 3 to 14 tokens, each of which needs a graph of its own."""
    engine = RecordingEngine(path, context=256)
    for n in range(3, 15):
        engine.greedy([(7 * n + i) % 90 for i in range(n)], 2)
        engine.run()
    return engine


def test_graphs_are_kept_while_they_are_small(tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model()
    unbounded = answer_short_prompts(path)
    sizes = live_bytes(unbounded)
    assert len(sizes) == unbounded._forward._executor.max_programs
    assert min(sizes) >= unbounded._plan.vocabulary * 4
    monkeypatch.setattr(forward, "_KEPT_BYTES", 2 * max(sizes))
    bounded = answer_short_prompts(path)
    assert 2 <= len(live_bytes(bounded)) < len(sizes)
    assert sum(live_bytes(bounded)) <= 3 * max(sizes), "the limit, and the latest that was built"
    assert bounded.drawn == unbounded.drawn
    bounded.close()
    unbounded.close()


def test_the_graph_of_a_chunk_in_fixed_slots_goes_first(tiny_model: Callable[..., Path]) -> None:
    engine = RecordingEngine(tiny_model(), context=256)
    engine.greedy(range(40), 4)
    engine.step()
    engine.step()
    assert [len(live.graph.tokens.array) for live in engine._forward._live.values()] == [1]
    engine.close()


def test_probabilities_take_the_place_of_scores(tiny_model: Callable[..., Path]) -> None:
    n_heads, n_tokens, n_columns = 4, 60, 256
    engine = RecordingEngine(tiny_model(heads=n_heads, context=n_columns), context=n_columns, token_budget=n_tokens)
    engine.greedy([i % 90 for i in range(4 * n_tokens)], 1)
    engine.run()
    assert live_bytes(engine)[-1] < 2 * n_heads * n_tokens * n_columns * 4
    engine.close()


def scattered_pairs(reading: Reading) -> tuple[Segment, ...]:
    """Decodes of which each two share a prefix; prefixes and rests lie in as many runs as are read apart."""
    blocks = count(0, 5)
    segments: list[Segment] = []
    for _ in range(N_PAIRS):
        prefix = [Run(next(blocks), 1) for _ in range(reading.max_spans)]
        start = 2 * reading.max_spans * BLOCK_SIZE - 1
        readers = [Reader([*prefix, *(Run(next(blocks), 1) for _ in prefix)], start) for _ in range(2)]
        [shared] = shared_prefixes(readers, BLOCK_SIZE, reading, min_positions=BLOCK_SIZE)
        assert [len(shared.spans), *(len(rest.spans) for rest in shared.rests)] == [reading.max_spans] * 3
        shared = shared._replace(members=(len(segments), len(segments) + 1))
        for reader, rest in zip(readers, shared.rests, strict=True):
            segments.append(Segment(start, 1, write_spans(reader.runs, BLOCK_SIZE, start, 1), rest, shared))
    return tuple(segments)


def test_each_layer_has_room_for_scattered_pairs(
    tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph that takes most nodes: too little room would end the process."""
    layout, device = KvLayout.PACKED, cpu_device()
    segments = scattered_pairs(layout.reading)
    n = len(segments)
    batch = Batch(np.zeros(n, np.int32), np.full(n, segments[0].start, np.int32), (segments,), tuple(range(n)))
    room = graph.max_nodes
    monkeypatch.setattr(graph, "max_nodes", lambda *arguments: 2 * room(*arguments))
    used, granted = [], []
    for n_layers in (2, 3):
        file = GgufFile.open(str(tiny_model(layers=n_layers)))
        plan = ModelPlan.from_gguf(file)
        weights = Weights(file, plan, device, lambda _fraction: None, copied=True)
        pool = KvPool(plan.kv_groups, 5 * 3 * N_PAIRS * layout.reading.max_spans, BLOCK_SIZE, layout, device)
        built = graph.build_graph(plan, weights, pool, batch, AttentionChoice())
        used.append(_used_memory(built.builder.context))
        granted.append(room(plan, layout, n, n) * ggml.tensor_overhead())
        used[-1] -= ggml.graph_overhead_custom(2 * room(plan, layout, n, n), False)
        built.builder.close()
        pool.close()
        weights.close()
    assert used[1] - used[0] <= granted[1] - granted[0]
