"""Which tensors a checkpoint must hold, and what each becomes in GGUF."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import gguf
import numpy as np
from gguf import GGMLQuantizationType

from engine.printable import quoted
from models.conversion.checkpoint import Config
from models.conversion.safetensors_file import DTYPES, StoredTensor
from models.errors import ConversionError

_F32 = "F32"


class PlannedTensor(NamedTuple):
    """A tensor of the GGUF file to write.

    shape: in numpy's order. dtype: F32, F16 or BF16. heads: their number, if the rows are to be put in the order in
    which neighbours are rotated together.
    """

    name: str
    source: StoredTensor
    dtype: str
    heads: int | None = None

    @property
    def n_parameters(self) -> int:
        """Number of values."""
        return math.prod(self.source.shape)

    @property
    def n_bytes(self) -> int:
        """Size in the file to write."""
        return self.n_parameters * DTYPES[self.dtype].itemsize

    @property
    def type(self) -> GGMLQuantizationType:
        """The same as `dtype`, for gguf."""
        return GGMLQuantizationType[self.dtype]

    def read(self) -> np.ndarray:
        """The values to write; of BF16 the bits. Raises ConversionError when they cannot be read."""
        values = self.source.read()
        if self.dtype != self.source.dtype:
            values = _as_f32(values, self.source.dtype)
        return values if self.heads is None else _neighbours_together(values, self.heads)


class _Expected(NamedTuple):
    """A tensor that a model of this configuration has."""

    name: str
    shape: tuple[int, ...]
    heads: int | None = None


def plan_tensors(config: Config, stored: Mapping[str, StoredTensor]) -> list[PlannedTensor]:
    """The tensors to write, in the order of the model's layers.

    Raises ConversionError if one is missing, has another shape than the configuration gives it or a type that is not
    converted, and if there is one that nothing here accounts for.
    """
    tied = "lm_head.weight" not in stored if config.tied is None else config.tied
    expected = list(_expected(config, tied=tied))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.family.architecture.upper()], config.n_layer)
    planned = [
        PlannedTensor(
            names.get_name(wanted.name, (".weight", ".bias")),
            source := _found(wanted, stored),
            source.dtype if len(wanted.shape) > 1 else _F32,
            wanted.heads if config.family.rotates_neighbours else None,
        )
        for wanted in expected
    ]
    known = {wanted.name for wanted in expected}
    unknown = next((name for name in stored if name not in known and not _is_implied(name)), None)
    if unknown:
        raise ConversionError(
            f"The checkpoint has a tensor {quoted(unknown)} that its configuration does not account for, so that the "
            "converted model would answer differently."
        )
    return planned


def _expected(config: Config, *, tied: bool) -> Iterator[_Expected]:
    embedding, rows_q, rows_kv = config.embedding, config.n_head * config.head_dim, config.n_head_kv * config.head_dim
    qkv_bias = config.family.qkv_bias or config.attention_bias
    yield _Expected("model.embed_tokens.weight", (config.vocabulary, embedding))
    for index in range(config.n_layer):
        prefix = f"model.layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        yield _Expected(prefix + "input_layernorm.weight", (embedding,))
        yield from _linear(attention + "q_proj", rows_q, embedding, bias=qkv_bias, heads=config.n_head)
        yield from _linear(attention + "k_proj", rows_kv, embedding, bias=qkv_bias, heads=config.n_head_kv)
        yield from _linear(attention + "v_proj", rows_kv, embedding, bias=qkv_bias)
        yield from _linear(attention + "o_proj", embedding, rows_q, bias=config.attention_bias)
        if config.family.query_key_norm:
            yield _Expected(attention + "q_norm.weight", (config.head_dim,))
            yield _Expected(attention + "k_norm.weight", (config.head_dim,))
        yield _Expected(prefix + "post_attention_layernorm.weight", (embedding,))
        yield from _linear(mlp + "gate_proj", config.feed_forward, embedding, bias=config.mlp_bias)
        yield from _linear(mlp + "up_proj", config.feed_forward, embedding, bias=config.mlp_bias)
        yield from _linear(mlp + "down_proj", embedding, config.feed_forward, bias=config.mlp_bias)
    yield _Expected("model.norm.weight", (embedding,))
    if not tied:
        yield _Expected("lm_head.weight", (config.vocabulary, embedding))


def _linear(name: str, n_out: int, n_in: int, *, bias: bool, heads: int | None = None) -> Iterator[_Expected]:
    yield _Expected(name + ".weight", (n_out, n_in), heads)
    if bias:
        yield _Expected(name + ".bias", (n_out,), heads)


def _found(wanted: _Expected, stored: Mapping[str, StoredTensor]) -> StoredTensor:
    tensor = stored.get(wanted.name)
    if tensor is None:
        raise ConversionError(f"The checkpoint has no tensor {quoted(wanted.name)}: download it again.")
    if tensor.shape != wanted.shape:
        raise ConversionError(
            f"Tensor {quoted(wanted.name)} of the checkpoint is {_dimensions(tensor.shape)}, but its 'config.json' "
            f"asks for {_dimensions(wanted.shape)}: download both again."
        )
    if tensor.dtype not in DTYPES:
        raise ConversionError(
            f"Tensor {quoted(wanted.name)} of the checkpoint is stored as {quoted(tensor.dtype)}, and only F32, F16 "
            "and BF16 are converted: use the checkpoint before it was quantized."
        )
    return tensor


def _is_implied(name: str) -> bool:
    """Whether a tensor repeats what is known: the frequencies of rope, or the output when it is tied."""
    return name.endswith(".rotary_emb.inv_freq") or name == "lm_head.weight"


def _as_f32(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "BF16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _neighbours_together(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from the order 0 … n/2-1, n/2 … n-1 into 0, n/2, 1, n/2+1 …"""
    n = len(values) // heads
    order = np.arange(n).reshape(2, n // 2).T.ravel()
    return values.reshape(heads, n, *values.shape[1:])[:, order].reshape(values.shape)


def _dimensions(shape: tuple[int, ...]) -> str:
    return "×".join(str(n) for n in shape)
