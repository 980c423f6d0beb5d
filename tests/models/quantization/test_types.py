"""The table of types against the quantizer itself, asked about a model of the shape of Llama 3.1 8B."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from engine import ggml
from engine.native import llama, log_to
from models.errors import QuantizeError
from models.quantization.types import FILE_TYPES, HARD_IMATRIX_TYPES, TENSOR_TYPES, find_type, without_type

_N_LAYERS, _WIDTH, _KV_WIDTH, _HIDDEN, _N_TOKENS = 32, 4096, 1024, 14_336, 128_256
_NEWEST_TYPE = 64
"""Above every number in use."""


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with all tensors and none of their bytes: what was never written takes no room on the disk."""
    path = tmp_path_factory.mktemp("shape") / "llama-3.1-8b.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(_N_LAYERS)
    writer.add_feed_forward_length(_HIDDEN)
    writer.add_head_count(32)
    writer.add_head_count_kv(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(_N_TOKENS)
    writer.add_tokenizer_model("none")
    n_bytes = 0
    for name, shape in _shapes():
        dtype = np.dtype(np.float16 if len(shape) > 1 else np.float32)
        size = int(np.prod(shape)) * dtype.itemsize
        writer.add_tensor_info(name, shape, dtype, size)
        n_bytes += size
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, path.stat().st_size + n_bytes + 64)
    return path


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (_N_TOKENS, _WIDTH)
    yield "output.weight", (_N_TOKENS, _WIDTH)
    yield "output_norm.weight", (_WIDTH,)
    for layer in range(_N_LAYERS):
        for name, shape in (
            ("attn_norm", (_WIDTH,)),
            ("ffn_norm", (_WIDTH,)),
            ("attn_q", (_WIDTH, _WIDTH)),
            ("attn_k", (_KV_WIDTH, _WIDTH)),
            ("attn_v", (_KV_WIDTH, _WIDTH)),
            ("attn_output", (_WIDTH, _WIDTH)),
            ("ffn_gate", (_HIDDEN, _WIDTH)),
            ("ffn_up", (_HIDDEN, _WIDTH)),
            ("ffn_down", (_WIDTH, _HIDDEN)),
        ):
            yield f"blk.{layer}.{name}.weight", shape


def _dry_run(path: Path, ftype: int) -> str:
    """The quantizer's log, "" when it refuses."""
    pieces: list[str] = []
    params = llama.llama_model_quantize_default_params()
    params.dry_run, params.ftype = True, ftype
    with log_to(lambda _level, text: pieces.append(text)):
        status = llama.llama_model_quantize(os.fsencode(path), b"", ctypes.byref(params))
    return "" if status else "".join(pieces)


def test_bits_and_needs_are_the_quantizers(shape: Path) -> None:
    for file_type in FILE_TYPES:
        log = _dry_run(shape, file_type.ftype)
        bits = re.search(r"quant size .*\(([\d.]+) BPW\)", log)
        assert bits, file_type
        assert float(bits[1]) == pytest.approx(file_type.bits, abs=0.005), file_type
        assert ("require an imatrix" in log) == file_type.needs_imatrix, file_type


def test_the_table_is_complete(shape: Path) -> None:
    known = {number for number in range(_NEWEST_TYPE) if _dry_run(shape, number)}
    assert known == {file_type.ftype for file_type in FILE_TYPES}


def test_types_of_tensors() -> None:
    numbers = {(ggml.type_name(number) or b"").decode(): number for number in range(43)}
    needing = ggml.library.ggml_quantize_requires_imatrix
    needing.restype = ctypes.c_bool
    assert {name for name, number in numbers.items() if needing(number)} == HARD_IMATRIX_TYPES
    assert set(TENSOR_TYPES) <= set(numbers)
    assert not HARD_IMATRIX_TYPES & set(TENSOR_TYPES)


def test_finding_a_type() -> None:
    assert find_type("q4_k_m").name == find_type("Q4_K").name == "Q4_K_M"
    assert find_type("bf16").ftype == 32
    with pytest.raises(QuantizeError, match=r"'Q4'.*Q4_K_M"):
        find_type("Q4")
    with pytest.raises(QuantizeError, match="--types"):
        find_type("\x1b[31m")


@pytest.mark.parametrize(
    ("name", "stem"),
    [("Qwen3-4B-F16", "Qwen3-4B"), ("a.q8_0", "a"), ("a-Q4_K", "a"), ("F16", "F16"), ("a-b", "a-b"), ("-F16", "-F16")],
)
def test_names_without_a_type(name: str, stem: str) -> None:
    assert without_type(name) == stem
