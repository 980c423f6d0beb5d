"""From a Hugging Face checkpoint to one GGUF file, a tensor at a time: memory stays near the largest tensor's size."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import gguf
import numpy as np
from gguf import GGUFWriter

from engine.printable import one_line, quoted
from models.conversion.checkpoint import Config, checkpoint_name, read_config, stored_tensors
from models.conversion.plan import PlannedTensor, plan_tensors
from models.conversion.rope import ConvertedRope, convert_rope
from models.conversion.special_tokens import TokenizerFiles
from models.conversion.tokenizer import add_tokenizer
from models.errors import ConversionError

_FILE_TYPES = {"F32": "ALL_F32", "F16": "MOSTLY_F16", "BF16": "MOSTLY_BF16"}
"""Of gguf.LlamaFileType, by the type of most weights."""
_LONGEST_CARD = 256 * 2**10
"""Bytes; reading the metadata of a larger README.md takes seconds."""


def check_convertible(folder: Path) -> None:
    """Raise the ConversionError that `Conversion` would, as far as it shows in a folder without its weights."""
    _described(None, folder, read_config(folder))


class Conversion:
    """A checkpoint on its way into a GGUF file: first all but the weights, which leaves them to be asked for.

    Matrices keep their type, vectors become F32. The file is its caller's, who removes it after a failure. Use as a
    context manager.
    """

    def __init__(self, folder: Path, out: Path) -> None:
        """Write everything to `out` but the weights, for which a hole is left: llama.cpp can plan with such a file.

        Nothing is written before everything but the values of the tensors has been checked. Raises ConversionError if
        the model is none that is converted, a file is missing or damaged, or `out` cannot be written.
        """
        config = read_config(folder)
        self._out = out
        self._tensors = plan_tensors(config, stored_tensors(folder))
        self._divisors = convert_rope(config).divisors
        self._writer = _described(out, folder, config)
        _add_totals(self._writer, self._tensors)
        try:
            with self._explained():
                self._write_outline()
        except BaseException:
            self.close()
            raise

    def fill(self, progress: Callable[[int, int], None]) -> None:
        """Write the weights. progress gets their bytes that are written and those in all. Once only.

        Raises ConversionError if a file has become shorter, or `out` cannot be written.
        """
        done, total = 0, sum(tensor.n_bytes for tensor in self._tensors)
        with self._explained():
            if self._divisors is not None:
                self._writer.write_tensor_data(self._divisors)
            for tensor in self._tensors:
                self._writer.write_tensor_data(tensor.read())
                done += tensor.n_bytes
                progress(done, total)
            self._writer.flush()

    def close(self) -> None:
        """Close the file, whatever it holds."""
        with contextlib.suppress(OSError):  # after `fill` there is nothing left to be written
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_outline(self) -> None:
        """All up to the tensors, and the hole."""
        writer, divisors = self._writer, self._divisors
        sizes = [tensor.n_bytes for tensor in self._tensors]
        if divisors is not None:  # llama.cpp keeps those of the frequencies of rope in a tensor
            writer.add_tensor_info("rope_freqs.weight", divisors.shape, divisors.dtype, divisors.nbytes)
            sizes.append(divisors.nbytes)
        for tensor in self._tensors:
            writer.add_tensor_info(
                tensor.name, tensor.source.shape, np.dtype(np.float32), tensor.n_bytes, raw_dtype=tensor.type
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        start = os.path.getsize(self._out)
        os.truncate(self._out, sum(GGUFWriter.ggml_pad(size, writer.data_alignment) for size in (start, *sizes)))

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what goes wrong while writing into a sentence."""
        try:
            yield
        except UnicodeEncodeError:
            raise ConversionError("The checkpoint's tokenizer or template has text that is not Unicode.") from None
        except OSError as error:
            reason = error.strerror or "the disk is full"  # numpy reports a short write without a number
            raise ConversionError(
                f"{quoted(str(self._out))} cannot be written ({reason}): check the folder, or write elsewhere."
            ) from None


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
    writer.add_name(one_line(checkpoint_name(folder)))
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
        if os.path.getsize(folder / "README.md") > _LONGEST_CARD:
            return {}
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
