"""Makes the models that speed is measured with: the starter as Q4_0, and random weights in the shape of Llama-3.2-1B.

Usage: python scripts/make_models.py FOLDER [--q8]

The random model has the starter's tokenizer and says nothing sensible, but takes as long as a trained one. It is made
in F16 (2 GB, deleted at the end) and quantized as Q4_K_M, with --q8 also as Q8_0. Files that exist are left alone.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import click
import numpy as np
from gguf import GGUFReader, GGUFWriter

from engine.native import llama
from engine.threads import usable_cores
from models.locate import locate

N_LAYER, EMBEDDING, FEED_FORWARD, N_HEAD, N_HEAD_KV, HEAD_DIM = 16, 2048, 8192, 32, 8, 64

QUERY_KEY_SPREAD = 0.05
"""Standard deviation of the weights that make queries and keys: scores then differ, as in a trained model."""

SPREAD = 0.02
"""Standard deviation of all others."""


def quantize(source: Path, target: Path, file_type: int) -> None:
    """Write `source`, quantized or not, as another type (enum llama_ftype) of file to `target`."""
    params = llama.llama_model_quantize_default_params()
    params.ftype = file_type
    params.nthread = usable_cores()
    params.allow_requantize = True
    unfinished = target.with_suffix(".part")
    if llama.llama_model_quantize(os.fsencode(source), os.fsencode(unfinished), ctypes.byref(params)) != 0:
        raise click.ClickException(f"llama.cpp could not quantize {source}.")
    unfinished.rename(target)


def write_random_model(path: Path, starter: Path) -> None:
    """Write random weights in F16, tensor by tensor, with the tokenizer of the starter."""
    fields = GGUFReader(starter).fields
    vocabulary = len(fields["tokenizer.ggml.tokens"].contents())
    writer = GGUFWriter(path, "llama")
    writer.add_name("Random weights, shape of Llama 3.2 1B")
    writer.add_context_length(131072)
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_HEAD_KV)
    writer.add_rope_freq_base(500000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    for name, field in fields.items():
        if name.startswith("tokenizer."):
            sub_type = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    tensors = _tensors(vocabulary)
    for name, shape in tensors.items():
        dtype = _dtype(name)
        writer.add_tensor_info(name, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(0)
    for name, shape in tensors.items():
        writer.write_tensor_data(_values(name, shape, random))
    writer.close()


def _tensors(vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes, the contiguous dimension last."""
    kv_width = N_HEAD_KV * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocabulary, EMBEDDING),
        "output_norm.weight": (EMBEDDING,),
    }
    for layer in range(N_LAYER):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (EMBEDDING,),
            f"blk.{layer}.attn_q.weight": (N_HEAD * HEAD_DIM, EMBEDDING),
            f"blk.{layer}.attn_k.weight": (kv_width, EMBEDDING),
            f"blk.{layer}.attn_v.weight": (kv_width, EMBEDDING),
            f"blk.{layer}.attn_output.weight": (EMBEDDING, N_HEAD * HEAD_DIM),
            f"blk.{layer}.ffn_norm.weight": (EMBEDDING,),
            f"blk.{layer}.ffn_gate.weight": (FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_up.weight": (FEED_FORWARD, EMBEDDING),
            f"blk.{layer}.ffn_down.weight": (EMBEDDING, FEED_FORWARD),
        }
    return shapes


def _dtype(name: str) -> np.dtype[np.floating]:
    return np.dtype(np.float32 if "norm" in name else np.float16)


def _values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if "norm" in name:
        return np.ones(shape, np.float32)
    spread = QUERY_KEY_SPREAD if "attn_q" in name or "attn_k" in name else SPREAD
    return (random.standard_normal(shape, np.float32) * spread).astype(np.float16)


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--q8", is_flag=True, help="Also the random model as Q8_0.")
def main(folder: Path, q8: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    starter = locate(None)
    small = folder / "SmolLM2-135M-Instruct.Q4_0.gguf"
    if not small.exists():
        quantize(starter, small, llama.LLAMA_FTYPE_MOSTLY_Q4_0)
    wanted = {folder / "Random-1B.Q4_K_M.gguf": llama.LLAMA_FTYPE_MOSTLY_Q4_K_M}
    if q8:
        wanted[folder / "Random-1B.Q8_0.gguf"] = llama.LLAMA_FTYPE_MOSTLY_Q8_0
    missing = {target: file_type for target, file_type in wanted.items() if not target.exists()}
    if missing:
        unquantized = folder / "Random-1B.F16.part"
        try:
            write_random_model(unquantized, starter)
            for target, file_type in missing.items():
                quantize(unquantized, target, file_type)
        finally:
            unquantized.unlink(missing_ok=True)
    for path in [small, *wanted]:
        print(f"{path}  {path.stat().st_size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
