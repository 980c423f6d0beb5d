"""A plan of the forward graph, made from a GGUF file: every decision that engine/graph.py would otherwise take.

All rules about architectures live here and in engine/architectures.py, testable without running a graph.
Weights are named, not loaded. Dimensions are in ggml's order: a linear layer's weight is [n_in, n_out].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from engine import ggml
from engine.architectures import ARCHITECTURES, Architecture
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf_file import GgufFile, TensorInfo
from engine.hyperparameters import Hyperparameters, Rope
from engine.printable import one_line, quoted


@dataclass(frozen=True)
class Linear:
    """x · weight (+ bias): names of tensors of shape [n_in, n_out] and [n_out]."""

    weight: str
    bias: str | None
    n_in: int
    n_out: int


@dataclass(frozen=True)
class Norm:
    """RMS norm over the contiguous dimension, times weight (+ bias): names of tensors of that length, F32."""

    weight: str
    bias: str | None


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention of one layer.

    q_norm, k_norm: over each head's vector, before rope; None where the architecture has none.
    scale: factor on query · key. kv_group: index into ModelPlan.kv_groups.
    """

    q: Linear
    k: Linear
    v: Linear
    output: Linear
    q_norm: Norm | None
    k_norm: Norm | None
    rope: Rope
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    scale: float
    kv_group: int


@dataclass(frozen=True)
class FeedForward:
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    gate: Linear
    up: Linear
    down: Linear


@dataclass(frozen=True)
class Layer:
    """x += attention(attention_norm(x)); x += feed_forward(feed_forward_norm(x))."""

    attention_norm: Norm
    attention: Attention
    feed_forward_norm: Norm
    feed_forward: FeedForward


@dataclass(frozen=True)
class KvGroup:
    """Layers whose K and V have the same row width and window, so that they share block tables.

    layers: indices, ascending. window: tokens a query sees, itself included; None is all of them.
    """

    layers: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    n_head_kv: int
    window: int | None


@dataclass(frozen=True)
class ModelPlan:
    """A decoder-only transformer.

    embedding: width of the residual stream. vocabulary: number of tokens. context_train: tokens the model was
    trained on. token_embedding: name of the [embedding, vocabulary] tensor. output: its weight is that same
    tensor when `tied`.
    """

    architecture: str
    embedding: int
    vocabulary: int
    context_train: int
    norm_epsilon: float
    token_embedding: str
    layers: tuple[Layer, ...]
    output_norm: Norm
    output: Linear
    tied: bool
    kv_groups: tuple[KvGroup, ...]

    @classmethod
    def from_gguf(cls, file: GgufFile) -> ModelPlan:
        """Plan the graph of the model in `file`.

        Raises UnsupportedModel if the architecture has no row, or the file has a tensor, a key or a type that
        the plan does not account for: a graph that ignored it would be silently wrong. Raises ModelFileError
        if it holds no language model, tensors are missing or their shapes disagree with the hyper-parameters.
        """
        kind = file.metadata.get("general.type")
        if kind in ("adapter", "imatrix", "mmproj"):
            raise ModelFileError(f"{_file_name(file)} holds no language model but {quoted(str(kind))} data for one.")
        architecture = ARCHITECTURES.get(file.architecture)
        if architecture is None:
            raise UnsupportedModel(
                f"The paged engine has no graph for the architecture {quoted(file.architecture)} of {_file_name(file)}."
            )
        return _Planner(file, architecture, Hyperparameters.from_gguf(file)).plan()


def _file_name(file: GgufFile) -> str:
    return f"'{one_line(file.path.name)}'"


_F32 = 0
_MULTIPLIED = frozenset([0, 1, 2, 3, 6, 7, 8, *range(10, 15), *range(16, 24), 29, 30, 34, 35, 39, 40, 41, 42])
"""Types (enum ggml_type) that ggml_mul_mat and ggml_get_rows take as weights: all but the integers, F64, and
Q8_1 and Q8_K, in which ggml only holds intermediate results."""


class _Planner:
    """Walks over the tensors of one file and takes note of those it has used."""

    def __init__(self, file: GgufFile, architecture: Architecture, hyper: Hyperparameters) -> None:
        self.file = file
        self.architecture = architecture
        self.hyper = hyper
        self.used: set[str] = set()
        self.missing: list[str] = []

    def plan(self) -> ModelPlan:
        hyper = self.hyper
        vocabulary = self._vocabulary()
        token_embedding = self._required("token_embd.weight", (hyper.embedding, vocabulary), _MULTIPLIED)
        tied = "output.weight" not in self.file.tensors
        output = (
            token_embedding if tied else self._required("output.weight", (hyper.embedding, vocabulary), _MULTIPLIED)
        )
        factors = self._optional("rope_freqs.weight", (hyper.head_dim // 2,))
        layers = tuple(self._layer(f"blk.{index}.", factors) for index in range(hyper.n_layer))
        plan = ModelPlan(
            architecture=self.architecture.name,
            embedding=hyper.embedding,
            vocabulary=vocabulary,
            context_train=hyper.context_train,
            norm_epsilon=hyper.norm_epsilon,
            token_embedding=token_embedding,
            layers=layers,
            output_norm=self._norm("output_norm", hyper.embedding),
            output=Linear(output, self._optional("output.bias", (vocabulary,)), hyper.embedding, vocabulary),
            tied=tied,
            kv_groups=(KvGroup(tuple(range(hyper.n_layer)), hyper.head_dim, hyper.head_dim, hyper.n_head_kv, None),),
        )
        self._check_all_used()
        return plan

    def _layer(self, prefix: str, factors: str | None) -> Layer:
        hyper = self.hyper
        return Layer(
            attention_norm=self._norm(prefix + "attn_norm", hyper.embedding),
            attention=self._attention(prefix, factors),
            feed_forward_norm=self._norm(prefix + "ffn_norm", hyper.embedding),
            feed_forward=FeedForward(
                gate=self._linear(prefix + "ffn_gate", hyper.embedding, hyper.feed_forward),
                up=self._linear(prefix + "ffn_up", hyper.embedding, hyper.feed_forward),
                down=self._linear(prefix + "ffn_down", hyper.feed_forward, hyper.embedding),
            ),
        )

    def _attention(self, prefix: str, factors: str | None) -> Attention:
        hyper = self.hyper
        q_width, kv_width = hyper.n_head * hyper.head_dim, hyper.n_head_kv * hyper.head_dim
        normed = self.architecture.query_key_norm
        return Attention(
            q=self._linear(prefix + "attn_q", hyper.embedding, q_width),
            k=self._linear(prefix + "attn_k", hyper.embedding, kv_width),
            v=self._linear(prefix + "attn_v", hyper.embedding, kv_width),
            output=self._linear(prefix + "attn_output", q_width, hyper.embedding),
            q_norm=self._norm(prefix + "attn_q_norm", hyper.head_dim) if normed else None,
            k_norm=self._norm(prefix + "attn_k_norm", hyper.head_dim) if normed else None,
            rope=hyper.rope(self.architecture.rope_mode, factors),
            n_head=hyper.n_head,
            n_head_kv=hyper.n_head_kv,
            head_dim_k=hyper.head_dim,
            head_dim_v=hyper.head_dim,
            scale=1 / math.sqrt(hyper.head_dim),
            kv_group=0,
        )

    def _vocabulary(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        vocabulary = self.hyper.vocabulary
        if vocabulary is None and embedding is not None and len(embedding.shape) == 2:
            vocabulary = embedding.shape[1]
        if vocabulary is None:
            raise ModelFileError(f"{_file_name(self.file)} is damaged: it has no token embeddings; download it again.")
        return vocabulary

    def _linear(self, name: str, n_in: int, n_out: int) -> Linear:
        weight = self._required(name + ".weight", (n_in, n_out), _MULTIPLIED)
        return Linear(weight, self._optional(name + ".bias", (n_out,)), n_in, n_out)

    def _norm(self, name: str, n: int) -> Norm:
        return Norm(self._required(name + ".weight", (n,), {_F32}), self._optional(name + ".bias", (n,)))

    def _required(self, name: str, shape: tuple[int, ...], types: Iterable[int]) -> str:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            self.missing.append(name)
        else:
            self._use(tensor, shape, types)
        return name

    def _optional(self, name: str, shape: tuple[int, ...]) -> str | None:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            return None
        self._use(tensor, shape, {_F32})
        return name

    def _use(self, tensor: TensorInfo, shape: tuple[int, ...], types: Iterable[int]) -> None:
        self.used.add(tensor.name)
        if _without_trailing_ones(tensor.shape) != _without_trailing_ones(shape):
            raise ModelFileError(
                f"{_file_name(self.file)} is damaged: tensor {quoted(tensor.name)} is {_dimensions(tensor.shape)}, "
                f"but its hyper-parameters ask for {_dimensions(shape)}; download it again."
            )
        if tensor.type not in types:
            raise UnsupportedModel(
                f"The paged engine cannot compute with tensor {quoted(tensor.name)} of {_file_name(self.file)}, "
                f"which is stored as {ggml.type_name(tensor.type).decode()}."
            )

    def _check_all_used(self) -> None:
        unknown = [name for name in self.file.tensors if name not in self.used]
        if unknown:
            raise UnsupportedModel(
                f"The paged engine does not know what tensor {quoted(unknown[0])} of {_file_name(self.file)} is for."
            )
        if self.missing:
            raise ModelFileError(
                f"{_file_name(self.file)} is damaged: it has no tensor {quoted(self.missing[0])}; download it again."
            )


def _without_trailing_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _dimensions(shape: tuple[int, ...]) -> str:
    return "×".join(str(n) for n in shape)
