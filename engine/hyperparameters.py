"""The hyper-parameters of a model, read from the keys `{architecture}.*` of its GGUF file and checked.

Names and defaults follow llama.cpp: src/llama-arch.cpp (names) and load_hparams in src/llama-model.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf_file import GgufFile, LongArray
from engine.printable import one_line, quoted

MAX_LAYERS = 512
"""LLAMA_MAX_LAYERS of llama.cpp."""

MAX_ROPE_FACTOR = 2.0**20
"""Far beyond any real extension of a context, and well within what F32 can invert."""

_MAX_SIZE = 2**31 - 1
"""ggml keeps head sizes, positions and token ids in 32 bits."""

_KNOWN_KEYS = frozenset(
    [
        "vocab_size",
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.type",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.attn_factor",
        "rope.scaling.finetuned",
        "expert_count",
        "expert_used_count",
    ]
)

_IGNORED_KEYS = frozenset(("tensor_data_layout", "attention.sliding_window"))
"""Keys that llama.cpp does not read for these architectures: their models attend to the whole context."""


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding, as ggml_rope_ext takes it.

    n_dims: rotated dimensions of a head. n_ctx_orig: context before any extension. freq_scale: factor on
    positions. ext_factor: 1 with YaRN, else 0. factors: name of a tensor [n_dims / 2] of divisors of the
    frequencies, or None.
    """

    mode: int
    n_dims: int
    n_ctx_orig: int
    freq_base: float
    freq_scale: float
    ext_factor: float
    attn_factor: float
    beta_fast: float
    beta_slow: float
    factors: str | None


@dataclass(frozen=True)
class Hyperparameters:
    """Sizes and constants of a decoder-only transformer whose layers are all alike.

    vocabulary: number of tokens, None if neither the key nor a token list says. feed_forward: inner width.
    head_dim: of queries, keys and values.
    """

    n_layer: int
    embedding: int
    feed_forward: int
    n_head: int
    n_head_kv: int
    head_dim: int
    vocabulary: int | None
    context_train: int
    norm_epsilon: float
    rope_freq_base: float
    rope_factor: float
    """By which the context was extended; 1 is none."""
    rope_yarn: bool
    rope_attn_factor: float
    rope_n_ctx_orig: int

    @classmethod
    def from_gguf(cls, file: GgufFile) -> Hyperparameters:
        """Read and check the keys of `file`.

        Raises ModelFileError if one is missing, of the wrong type or impossible, UnsupportedModel if one is
        unknown or asks for something that the paged engine cannot do.
        """
        keys = _Keys(file)
        keys.check_known()
        embedding = keys.size("embedding_length")
        n_head = keys.size("attention.head_count")
        n_head_kv = keys.size("attention.head_count_kv", n_head)
        if n_head % n_head_kv:
            raise keys.damaged(f"its {n_head} attention heads cannot share {n_head_kv} KV heads evenly")
        head_dim = keys.size("attention.key_length", embedding // n_head)
        if head_dim % 2:
            raise keys.damaged(f"its head size {head_dim} is odd, and rope turns dimensions in pairs")
        for key in ("attention.value_length", "rope.dimension_count"):
            if keys.size(key, head_dim) != head_dim:
                raise keys.damaged(f"{keys.shown(key)} must be the head size {head_dim} for this architecture")
        context_train = keys.size("context_length")
        scaling = keys.text("rope.scaling.type", "linear")
        if scaling not in ("none", "linear", "yarn"):
            raise keys.unsupported(f"rope scaling of type {quoted(scaling)}")
        factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0))
        if factor and not 1 <= factor <= MAX_ROPE_FACTOR:
            raise keys.unsupported(f"a rope scaling factor of {factor:g}")
        return cls(
            n_layer=keys.size("block_count", most=MAX_LAYERS),
            embedding=embedding,
            feed_forward=keys.size("feed_forward_length"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            head_dim=head_dim,
            vocabulary=keys.vocabulary(),
            context_train=context_train,
            norm_epsilon=keys.number("attention.layer_norm_rms_epsilon"),
            rope_freq_base=keys.number("rope.freq_base", 10000.0, positive=True),
            rope_factor=1.0 if scaling == "none" or factor == 0 else factor,
            rope_yarn=scaling == "yarn",
            rope_attn_factor=keys.number("rope.scaling.attn_factor", 1.0),
            rope_n_ctx_orig=keys.size("rope.scaling.original_context_length", context_train),
        )

    def rope(self, mode: int, factors: str | None) -> Rope:
        """Parameters of ggml_rope_ext, as llama.cpp's default context settings derive them (llama-context.cpp)."""
        freq_scale = 1 / self.rope_factor
        return Rope(
            mode=mode,
            n_dims=self.head_dim,
            n_ctx_orig=self.rope_n_ctx_orig,
            freq_base=self.rope_freq_base,
            freq_scale=freq_scale,
            ext_factor=1.0 if self.rope_yarn else 0.0,
            attn_factor=self.rope_attn_factor * (_yarn_attn_factor(freq_scale) if self.rope_yarn else 1.0),
            beta_fast=32.0,
            beta_slow=1.0,
            factors=factors,
        )


def _yarn_attn_factor(freq_scale: float) -> float:
    """YaRN multiplies queries and keys by 1 + 0.1·ln(1 / freq_scale) (arXiv:2309.00071). ggml does so itself, and
    llama.cpp, which does it too, divides by it again: 1, but for rounding in F32, which is repeated here.
    """
    factor = np.float32(1) / np.float32(freq_scale)
    magnitude = np.float32(1) + np.float32(0.1) * np.float32(math.log(factor))
    return float(magnitude * (np.float32(1) / magnitude))


class _Keys:
    """Typed access to the keys of the file's architecture, written without their prefix."""

    def __init__(self, file: GgufFile) -> None:
        self.file = file
        self.prefix = file.architecture + "."

    def check_known(self) -> None:
        names = [key.removeprefix(self.prefix) for key in self.file.metadata if key.startswith(self.prefix)]
        unknown = [name for name in names if name not in _KNOWN_KEYS and name not in _IGNORED_KEYS]
        if self.size("expert_count", 0, least=0):
            raise self.unsupported("a mixture of experts")
        if unknown:
            raise self.unsupported(f"the key {quoted(self.prefix + unknown[0])}")

    def vocabulary(self) -> int | None:
        """Number of tokens: of the token list, as llama.cpp counts them, or where there is none, of vocab_size."""
        tokens = self.file.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, LongArray):
            return tokens.n
        if isinstance(tokens, tuple):
            return len(tokens)
        return self.size("vocab_size") if self.prefix + "vocab_size" in self.file.metadata else None

    def size(self, key: str, default: int | None = None, *, least: int = 1, most: int = _MAX_SIZE) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.damaged(f"{self.shown(key)} must be a whole number")
        if not least <= value <= most:
            raise self.damaged(f"{self.shown(key)} is {value}, outside {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None, *, positive: bool = False) -> float:
        value = self._get(key, default)
        if not isinstance(value, float) or not math.isfinite(value) or value < 0 or (positive and value == 0):
            raise self.damaged(f"{self.shown(key)} must be a number {'above 0' if positive else 'of 0 or more'}")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self.damaged(f"{self.shown(key)} must be a text")
        return value

    def _get(self, key: str, default: object) -> object:
        value = self.file.metadata.get(self.prefix + key, default)
        if value is None:
            raise self.damaged(f"it has no {self.shown(key)}")
        if isinstance(value, tuple | LongArray):
            raise self.unsupported(f"{self.shown(key)} that differs from layer to layer")
        return value

    def shown(self, key: str) -> str:
        return f"key {quoted(self.prefix + key)}"

    def damaged(self, what: str) -> ModelFileError:
        return ModelFileError(f"'{one_line(self.file.path.name)}' is damaged: {what}; download it again.")

    def unsupported(self, what: str) -> UnsupportedModel:
        return UnsupportedModel(f"The paged engine cannot run '{one_line(self.file.path.name)}': it has {what}.")
