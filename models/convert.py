"""From a Hugging Face checkpoint to one GGUF file, a tensor at a time: memory stays near the largest tensor's size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import gguf
import numpy as np
from gguf import GGUFWriter

from engine.printable import quoted
from models.checkpoint import Config, checkpoint_name, read_config, stored_tensors
from models.convert_plan import PlannedTensor, plan_tensors
from models.convert_rope import ConvertedRope, convert_rope
from models.convert_tokenizer import add_tokenizer
from models.errors import ConversionError
from models.special_tokens import TokenizerFiles

_FILE_TYPES = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16"}
"""Of gguf.LlamaFileType, by the type of most weights."""


def check_convertible(folder: Path) -> None:
    """Raise the ConversionError that `convert` would, as far as it shows in a folder without its weights."""
    _described(None, folder, read_config(folder))


def convert(folder: Path, out: Path, progress: Callable[[int, int], None]) -> None:
    """Write the model in `folder` to `out`: matrices in the type that they have, vectors as F32.

    progress gets bytes written and bytes in all, of the tensors. `out` is written whole or not left behind.
    Raises ConversionError if the model is none that is converted, a file is missing or damaged, or `out` cannot be
    written. Nothing is written before everything but the values of the tensors has been checked.
    """
    config = read_config(folder)
    tensors = plan_tensors(config, stored_tensors(folder))
    writer = _described(out, folder, config)
    _add_totals(writer, tensors)
    try:
        _write(writer, tensors, convert_rope(config).divisors, progress)
    except BaseException as error:
        writer.close()
        with contextlib.suppress(OSError):  # it would hide what went wrong
            out.unlink(missing_ok=True)
        if isinstance(error, UnicodeEncodeError):
            raise ConversionError("The checkpoint's tokenizer or template has text that is not Unicode.") from None
        if isinstance(error, OSError):
            reason = error.strerror or "the disk is full"  # numpy reports a short write without a number
            raise ConversionError(f"{quoted(str(out))} cannot be written ({reason}).") from None
        raise
    writer.close()


def _described(out: Path | None, folder: Path, config: Config) -> GGUFWriter:
    """A writer that knows all there is to say about the model but for its tensors; no file is made yet."""
    writer = GGUFWriter(out, config.family.architecture)
    _add_origin(writer, folder)
    _add_hyperparameters(writer, config, convert_rope(config))
    add_tokenizer(writer, TokenizerFiles.read(folder), config.vocabulary)
    return writer


def _add_origin(writer: GGUFWriter, folder: Path) -> None:
    """What the model is called, what it is made from, and under which licence."""
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(checkpoint_name(folder))
    card = _model_card(folder)
    licence, bases = card.get("license"), card.get("base_model")
    if isinstance(licence, str):
        writer.add_license(licence)
    names = [base for base in (bases if isinstance(bases, list) else [bases]) if isinstance(base, str)]
    if names:
        writer.add_base_model_count(len(names))
    for index, name in enumerate(names):
        writer.add_base_model_name(index, name.rpartition("/")[2])
        writer.add_base_model_repo_url(index, f"https://huggingface.co/{name}")


def _add_totals(writer: GGUFWriter, tensors: Sequence[PlannedTensor]) -> None:
    n_parameters = sum(tensor.n_parameters for tensor in tensors)
    n_bytes = {dtype: sum(tensor.n_bytes for tensor in tensors if tensor.dtype == dtype) for dtype in _FILE_TYPES}
    most = max(n_bytes, key=lambda dtype: n_bytes[dtype])
    writer.add_size_label(gguf.size_label(n_parameters, n_parameters, 0, 0))
    writer.add_file_type(gguf.LlamaFileType[_FILE_TYPES[most]])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)


def _model_card(folder: Path) -> dict[str, object]:
    """The metadata at the top of README.md."""
    try:
        card: dict[str, object] = gguf.Metadata.load_model_card(folder)
    except Exception:  # it is written for people, and nothing that is wrong with it harms the model
        return {}
    return card


def _add_hyperparameters(writer: GGUFWriter, config: Config, rope: ConvertedRope) -> None:
    """A sliding window is left out: for these architectures llama.cpp attends to the whole context."""
    writer.add_vocab_size(config.vocabulary)
    writer.add_context_length(config.context_train)
    writer.add_embedding_length(config.embedding)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.feed_forward)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head_kv)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(rope.freq_base)
    if rope.factor != 1:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN if rope.yarn else gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope.factor)
    if rope.yarn:
        writer.add_rope_scaling_orig_ctx_len(rope.yarn.context)
        writer.add_rope_scaling_attn_factors(rope.yarn.magnitude)


def _write(
    writer: GGUFWriter,
    tensors: Sequence[PlannedTensor],
    divisors: np.ndarray | None,
    progress: Callable[[int, int], None],
) -> None:
    """Write everything. divisors: of the frequencies of rope, for the tensor that llama.cpp keeps them in."""
    if divisors is not None:
        writer.add_tensor_info("rope_freqs.weight", divisors.shape, divisors.dtype, divisors.nbytes)
    for tensor in tensors:
        writer.add_tensor_info(
            tensor.name, tensor.source.shape, np.dtype(np.float32), tensor.n_bytes, raw_dtype=tensor.type
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    if divisors is not None:
        writer.write_tensor_data(divisors)
    done, total = 0, sum(tensor.n_bytes for tensor in tensors)
    for tensor in tensors:
        writer.write_tensor_data(tensor.read())
        done += tensor.n_bytes
        progress(done, total)
