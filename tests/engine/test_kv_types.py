"""Keys and values in q8_0: against llama_decode with the same types, read back from the pool, and what is said of it.

Where the operations are llama.cpp's, results are identical. A long chunk over packed keys is not: llama.cpp rounds the
queries to q8_0 too, ours multiplies them as they are. There the bound is what q8_0 changes in llama.cpp itself.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ggml
from engine.attention_choice import AttentionChoice
from engine.blocks import BlockCopy
from engine.config import EngineConfig, EngineKind, KvType
from engine.contiguous import ContiguousEngine
from engine.devices import cpu_device
from engine.errors import UnsupportedKvType
from engine.kv_pool import KvLayout, KvPool
from engine.kv_types import KvTypes
from engine.loader import load_engine
from engine.paged import PagedEngine
from engine.plan import KvGroup
from engine.sequence import Request, SamplingParams, TokenEvent
from tests.engine.recording import RecordingEngine
from tests.engine.test_kv_pool import run_copies
from tests.engine.test_llama_context import mamba
from tests.reference import F16, Q8_0, LlamaDecode

TinyModel = Callable[..., Path]

MODELS: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 32},
    "llama, rotated": {"head_dim": 64, "heads": 8, "heads_kv": 2},
    "llama, rotated by two sizes": {"head_dim": 128},
    "qwen3": {"architecture": "qwen3", "head_dim": 32},
}
ORACLES: dict[KvLayout, dict[str, Any]] = {
    KvLayout.PACKED: {"kv_type": Q8_0, "v_type": F16, "flash": False},
    KvLayout.ROWS: {"kv_type": Q8_0, "flash": True},
}
"""llama.cpp's settings that store and compute what a layout does."""

BLOCK_Q8_0 = np.dtype([("scale", "<f2"), ("values", "i1", 32)])


def prompt_of(n: int) -> list[int]:
    return [(5 * i * i + i) % 90 for i in range(n)]


def oracle(path: Path, prompt: list[int], answer: list[int] | int, **types: Any) -> np.ndarray:
    """Logits of llama_decode along a given answer, or a greedy one of so many tokens: [n_tokens, vocabulary]."""
    n_tokens = answer if isinstance(answer, int) else len(answer)
    with LlamaDecode(path, extra_bufts=True, n_ctx=512, **types) as reference:
        rows = [reference.decode(prompt, last_only=True)[0]]
        for i in range(n_tokens - 1):
            token = int(rows[-1].argmax()) if isinstance(answer, int) else answer[i]
            rows.append(reference.decode([token], len(prompt) + i)[0])
    return np.stack(rows)


def choices(rows: np.ndarray) -> list[int]:
    return [int(token) for token in rows.argmax(axis=1)]


def nmse(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean((actual - expected) ** 2) / np.mean(expected**2))


def effect(path: Path, prompt: list[int], expected: np.ndarray, layout: KvLayout) -> float:
    """What q8_0 changes in llama.cpp itself, along the same answer."""
    f16 = oracle(path, prompt, choices(expected), **ORACLES[layout] | {"kv_type": F16, "v_type": F16})
    return nmse(expected, f16)


def load(path: Path, **options: Any) -> RecordingEngine:
    """One token a step: several are not computed bit for bit like one."""
    return RecordingEngine(path, context=400, kv_type=KvType.Q8_0, speculate=False, **options)


def logits(engine: RecordingEngine, prompt: list[int], answer: list[int], n: int = 1) -> list[np.ndarray]:
    """Rows along an answer, of each of the n that are asked for; closes the engine."""
    request = engine.follow(prompt, answer, n)
    engine.run()
    rows = [engine.logits(request, index) for index in range(n)]
    engine.close()
    return rows


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS.keys())
def test_identical_to_llama_cpp(tiny_model: TinyModel, options: dict[str, Any], layout: KvLayout) -> None:
    path = tiny_model(**options)
    prompt = prompt_of(40)
    expected = oracle(path, prompt, 24, **ORACLES[layout])
    [rows] = logits(load(path, layout=layout), prompt, choices(expected))
    assert np.array_equal(rows, expected)
    assert effect(path, prompt, expected, layout) > 1e-6  # f16 would not be


def test_starter_model_is_identical_to_llama_cpp(starter_path: Path) -> None:
    prompt = [1, 4093, 198, 2683, 359, 260, 6376, 4461, 47, 2, 198, 1, 520, 9531, 198] * 3
    expected = oracle(starter_path, prompt, 16, **ORACLES[KvLayout.PACKED])
    [rows] = logits(load(starter_path), prompt, choices(expected))
    assert np.array_equal(rows, expected)


@pytest.mark.parametrize("n_prompt", [64, 150, 300])
def test_long_chunks_over_packed_keys(tiny_model: TinyModel, n_prompt: int) -> None:
    path = tiny_model(context=512, **MODELS["llama, rotated"])
    prompt = prompt_of(n_prompt)
    expected = oracle(path, prompt, 24, **ORACLES[KvLayout.PACKED])
    f16 = oracle(path, prompt, choices(expected), kv_type=F16, flash=True)
    [rows] = logits(load(path), prompt, choices(expected))
    bound = 2 * nmse(expected, f16)
    assert nmse(rows, f16) <= bound
    assert nmse(rows, expected) <= bound
    other = oracle(path, [*prompt[-25:-1], *prompt[24:]], choices(expected), **ORACLES[KvLayout.PACKED])
    assert nmse(other, expected) > 2 * bound  # so few wrong tokens, the farthest from the answer, are seen


def test_long_chunks_over_rows_are_identical_to_llama_cpp(tiny_model: TinyModel) -> None:
    path = tiny_model(context=512, **MODELS["llama, rotated"])
    expected = oracle(path, prompt_of(300), 24, **ORACLES[KvLayout.ROWS])
    [rows] = logits(load(path, layout=KvLayout.ROWS), prompt_of(300), choices(expected))
    assert np.array_equal(rows, expected)


def test_packed_long_chunks_are_identical_to_llama_cpp(tiny_model: TinyModel) -> None:
    """Where flash attention is not chosen, queries are rounded as llama.cpp rounds them; and keys are read ahead."""
    path = tiny_model(context=512, **MODELS["llama, rotated"])
    expected = oracle(path, prompt_of(300), 24, **ORACLES[KvLayout.PACKED])
    choice = AttentionChoice(unpacked_columns=0, ahead_columns=0, flash=False)
    [rows] = logits(load(path, choice=choice), prompt_of(300), choices(expected))
    assert nmse(rows, expected) <= 1e-9


@pytest.mark.parametrize("layout", KvLayout)
def test_scattered_blocks(tiny_model: TinyModel, layout: KvLayout) -> None:
    """A pool whose free blocks are every second one: each block of the sequence is a run of its own."""
    path = tiny_model(context=512, **MODELS["llama, rotated"])
    prompt = prompt_of(60)
    expected = oracle(path, prompt, 40, **ORACLES[layout])
    engine = load(path, n_blocks=32, layout=layout)
    allocator = engine._scheduler.kv.groups[0]
    for block in allocator.allocate(32)[::2]:
        allocator.release(block)
    [rows] = logits(engine, prompt, choices(expected))
    assert nmse(rows, expected) <= effect(path, prompt, expected, layout)


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("seed", range(3))
def test_chunks_and_blocks_do_not_matter(tiny_model: TinyModel, seed: int, layout: KvLayout) -> None:
    chance = random.Random(seed)
    path = tiny_model(context=512, **MODELS["llama, rotated"])
    prompt = prompt_of(300)
    expected = oracle(path, prompt, 24, **ORACLES[layout])
    engine = load(path, n_blocks=64, layout=layout)
    allocator = engine._scheduler.kv.groups[0]
    for block in chance.sample(allocator.allocate(64), 32):
        allocator.release(block)
    request = engine.follow(prompt, choices(expected))
    while engine.has_work():
        engine._scheduler.token_budget = chance.choice([1, 5, 15, 16, 17, 63, 64, 100])
        engine.step()
    assert nmse(engine.logits(request), expected) <= effect(path, prompt, expected, layout)
    engine.close()


@pytest.mark.parametrize("layout", KvLayout)
def test_answers_that_fork(tiny_model: TinyModel, layout: KvLayout) -> None:
    """The last block of the prompt is copied for each answer."""
    path = tiny_model(**MODELS["llama"])
    expected = oracle(path, prompt_of(40), 24, **ORACLES[layout])
    for rows in logits(load(path, layout=layout), prompt_of(40), choices(expected), n=3):
        assert nmse(rows, expected) <= effect(path, prompt_of(40), expected, layout) / 10


@pytest.mark.parametrize("layout", KvLayout)
@pytest.mark.parametrize("head_dim", [32, 64])
def test_the_pool_holds_what_f16_holds(tiny_model: TinyModel, head_dim: int, layout: KvLayout) -> None:
    """Layer 0, slot by slot: within half a step of the block's scale, after the turn by a Hadamard matrix."""
    path = tiny_model(head_dim=head_dim)
    stored = []
    for kv_type in KvType:
        engine = RecordingEngine(path, kv_type=kv_type, layout=layout)
        engine.follow(prompt_of(40), [1])
        engine.run()
        stored.append((numbers(engine._pool.k[0], head_dim), numbers(engine._pool.v[0], head_dim)))
        types = engine._pool.types
        engine.close()
    (k_f16, v_f16), (k_q8_0, v_q8_0) = stored
    assert types == KvTypes(KvType.Q8_0, KvType.F16 if layout is KvLayout.PACKED else KvType.Q8_0)
    assert np.count_nonzero(k_f16.any(axis=1)) == 40 * 2
    assert_rounded(k_q8_0, turned(k_f16))
    if types.v is KvType.Q8_0:
        assert_rounded(v_q8_0, turned(v_f16))
    else:
        assert np.array_equal(v_q8_0, v_f16)


def numbers(tensor: int, head_dim: int) -> np.ndarray:
    """All vectors of heads of a tensor in host memory, [n, head_dim]; of transposed values, rows of any kind."""
    memory = (ctypes.c_char * ggml.nbytes(tensor)).from_address(ggml.get_data(tensor))
    if ggml.head(tensor).type == ggml.F16:
        return np.frombuffer(memory, "<f2").astype(np.float32).reshape(-1, head_dim)
    blocks = np.frombuffer(memory, BLOCK_Q8_0)
    return (blocks["scale"].astype(np.float32)[:, None] * blocks["values"]).reshape(-1, head_dim)


def turned(vectors: np.ndarray) -> np.ndarray:
    """Multiplied by the orthonormal Walsh-Hadamard matrix of 64 rows; of 32 values, as they are."""
    if vectors.shape[1] < 64:
        return vectors
    matrix = np.ones((1, 1))
    for _ in range(6):
        matrix = np.kron(np.array([[1, 1], [1, -1]]) / np.sqrt(2), matrix)
    return np.asarray(vectors @ matrix)


def assert_rounded(actual: np.ndarray, expected: np.ndarray) -> None:
    actual, expected = actual.reshape(-1, 32), expected.reshape(-1, 32)
    largest = np.abs(expected).max(axis=1, keepdims=True)
    step = largest / 127
    assert np.all(np.abs(actual - expected) <= 0.5 * step + largest * 2**-9)  # scale, and f16 itself, are rounded too


@pytest.mark.parametrize("layout", KvLayout)
def test_a_copied_block_has_the_same_bytes(layout: KvLayout) -> None:
    group = KvGroup(layers=(0,), head_dim_k=32, head_dim_v=64, n_head_kv=3, window=None)
    pool = KvPool((group,), 8, 16, layout, cpu_device(), KvType.Q8_0)
    random_bytes = np.random.default_rng(0)
    for tensor, axis, slot_bytes in (
        (pool.k[0], 1 if layout is KvLayout.PACKED else 0, 34 if layout is KvLayout.PACKED else 3 * 34),
        (pool.v[0], 1 if layout is KvLayout.PACKED else 0, 2 if layout is KvLayout.PACKED else 3 * 68),
    ):
        content = np.frombuffer((ctypes.c_char * ggml.nbytes(tensor)).from_address(ggml.get_data(tensor)), np.uint8)
        content[:] = random_bytes.integers(0, 256, content.size)
        before = content.copy()
        run_copies(pool, [BlockCopy(0, 2, 5)])
        old, new = (
            np.moveaxis(array.reshape((-1, pool.stride, slot_bytes) if axis else (pool.stride, slot_bytes)), axis, 0)
            for array in (before, content)
        )
        assert np.array_equal(new[5 * 16 : 6 * 16], old[2 * 16 : 3 * 16])
        assert np.array_equal(np.delete(new, np.s_[5 * 16 : 6 * 16], 0), np.delete(old, np.s_[5 * 16 : 6 * 16], 0))
    pool.close()


@pytest.mark.parametrize(
    ("layout", "head_bytes"), [(KvLayout.PACKED, 34 + 32 * 2), (KvLayout.ROWS, 34 + 34)], ids=["packed", "rows"]
)
def test_memory_is_counted_as_it_is_stored(tiny_model: TinyModel, layout: KvLayout, head_bytes: int) -> None:
    engine = load(tiny_model(head_dim=32), layout=layout)
    stats = engine.kv_stats()
    assert stats.block_bytes == 16 * 2 * 2 * head_bytes
    assert stats.bytes_contiguous_would_reserve == 400 * 2 * 2 * head_bytes
    tensors = [*engine._pool.k.values(), *engine._pool.v.values()]
    assert sum(map(ggml.nbytes, tensors)) == engine._pool.stride * 2 * 2 * head_bytes
    engine.close()


def test_more_context_fits_the_same_memory(tiny_model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tiny_model(context=65536, head_dim=32)
    monkeypatch.setattr("engine.paged.available_memory", lambda: path.stat().st_size + 16 * 2**20)
    contexts = []
    for kv_type in KvType:
        engine = PagedEngine(str(path), EngineConfig(threads=1, device="CPU", kv_type=kv_type), lambda _: None)
        contexts.append(engine.context)
        engine.close()
    gathered = 4 * 2 * (32 + 32)  # bytes of a token's keys and values that a long chunk gathers
    assert contexts == [8 * 2**20 // (2 * 2 * size + gathered) // 256 * 256 for size in (128, 34 + 64)]


def test_contiguous_engine(tiny_model: TinyModel) -> None:
    path = tiny_model(head_dim=64)
    engine = contiguous(path)
    kv = engine.kv_stats()
    assert (kv.type_k, kv.type_v) == (KvType.Q8_0, KvType.Q8_0)
    assert kv.block_bytes == 2 * 2 * (68 + 68)
    assert kv.bytes_resident == pytest.approx(256 * kv.block_bytes, rel=0.04)  # llama.cpp tells hundredths of MiB
    engine.submit(Request(tuple(prompt_of(40)), SamplingParams(temperature=0), 24))
    tokens = []
    while engine.has_work():
        tokens += [event.token_id for event in engine.step() if isinstance(event, TokenEvent)]
    engine.close()
    assert tokens == choices(oracle(path, prompt_of(40), 24, **ORACLES[KvLayout.ROWS]))


def test_contiguous_engine_without_flash_attention_keeps_values_in_f16(tiny_model: TinyModel) -> None:
    engine = contiguous(tiny_model(head_dim=64), flash=False)
    kv = engine.kv_stats()
    assert (kv.type_k, kv.type_v) == (KvType.Q8_0, KvType.F16)
    assert kv.bytes_resident == pytest.approx(256 * 2 * 2 * (68 + 128), rel=0.04)
    engine.close()


def contiguous(path: Path, flash: bool | None = None) -> ContiguousEngine:
    config = EngineConfig(context=256, threads=1, device="CPU", kv_type=KvType.Q8_0)
    return ContiguousEngine(str(path), config, lambda _: None, flash=flash)


@pytest.mark.parametrize("kind", [None, *EngineKind])
@pytest.mark.parametrize("head_dim", [16, 48])
def test_heads_that_blocks_do_not_divide(tiny_model: TinyModel, head_dim: int, kind: EngineKind | None) -> None:
    with pytest.raises(UnsupportedKvType, match=rf"heads have {head_dim} values.*--kv-type f16\.$"):
        notice_of(tiny_model(head_dim=head_dim), kind)


def test_what_is_stored_how_is_said(tiny_model: TinyModel) -> None:
    path = tiny_model(head_dim=32)
    assert notice_of(path, None, KvType.F16) is None
    assert (notice_of(path, None) or "").startswith("Keys are stored as q8_0, values as f16: ")
    assert notice_of(path, EngineKind.CONTIGUOUS) == "Keys and values are stored as q8_0."


def test_a_model_without_flash_attention_keeps_no_values_in_q8_0(tiny_model: TinyModel) -> None:
    """llama.cpp switches it off for grok, whatever is asked for."""
    experts = np.random.default_rng(1).normal(0, 0.25, (2, 64, 64))
    tensors = {
        f"blk.{layer}.{name}.weight": array
        for layer in range(2)
        for name, array in {
            "attn_output_norm": np.ones(64),
            "layer_output_norm": np.ones(64),
            "ffn_gate_inp": experts[:, 0],
            "ffn_gate_exps": experts,
            "ffn_up_exps": experts,
            "ffn_down_exps": experts,
        }.items()
    }
    path = tiny_model(
        "grok", heads=2, heads_kv=1, ff=64, tensors=tensors, keys={"expert_count": 2, "expert_used_count": 1}
    )
    notice_of(path, EngineKind.CONTIGUOUS, KvType.F16)
    with pytest.raises(UnsupportedKvType, match=r"llama\.cpp cannot .* q8_0: use --kv-type f16\.$"):
        notice_of(path, EngineKind.CONTIGUOUS)


def test_a_model_without_keys_and_values(tiny_model: TinyModel) -> None:
    path = tiny_model("mamba", heads=0, heads_kv=0, head_dim=1, **mamba(layers=2, embedding=64))
    assert "--kv-type changes nothing" in (notice_of(path, EngineKind.CONTIGUOUS) or "")


def notice_of(path: Path, kind: EngineKind | None, kv_type: KvType = KvType.Q8_0) -> str | None:
    config = EngineConfig(kind, context=256, threads=1, device="CPU", kv_type=kv_type)
    engine, notice, _ = load_engine(str(path), config, lambda _: None)
    engine.close()
    return notice
