"""What a model file says about itself, in the figures that people compare models by."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine import ggml
from engine.config import EngineKind
from engine.errors import UnsupportedModel
from engine.gguf_file import GgufFile, LongArray, TensorInfo
from engine.kv_size import kv_bytes_per_token
from engine.plan import ModelPlan
from models.quantization.types import FILE_TYPES

_FILE_TYPE_NAMES = {file_type.ftype: file_type.name for file_type in FILE_TYPES}


class TypeShare(NamedTuple):
    """The tensors of one type. name: as ggml writes it. parameters: numbers in them. n_bytes: of their data."""

    name: str
    n_tensors: int
    parameters: int
    n_bytes: int

    @property
    def bits_per_weight(self) -> float:
        """Scales and minima included."""
        return 8 * self.n_bytes / self.parameters if self.parameters else 0.0


@dataclass(frozen=True)
class ModelSummary:
    """A model as `octavo show` describes it. Texts are as in the file: use engine/printable.py to show them.

    paths: of its files. n_bytes: of all of them. metadata: all keys and values. tensor_types: the largest first.
    engine: the one that runs it when none is asked for; reason: why it is not the paged one, else empty.
    kv_bytes_per_token: F16, None where the file does not tell. context: tokens it was trained on.
    """

    paths: tuple[Path, ...]
    n_bytes: int
    metadata: Mapping[str, object]
    architecture: str
    tensor_types: tuple[TypeShare, ...]
    output_bytes: int
    """Of the copy of the token embeddings that a model without an output matrix needs when it runs."""
    engine: EngineKind
    reason: str
    kv_bytes_per_token: int | None

    @property
    def parameters(self) -> int:
        """Numbers in all tensors."""
        return sum(share.parameters for share in self.tensor_types)

    @property
    def weight_bytes(self) -> int:
        """What the weights take in memory."""
        return sum(share.n_bytes for share in self.tensor_types) + self.output_bytes

    @property
    def bits_per_weight(self) -> float:
        """Of all tensors together."""
        return 8 * sum(share.n_bytes for share in self.tensor_types) / self.parameters if self.parameters else 0.0

    @property
    def quantization(self) -> str:
        """Such as "Q4_K_M"."""
        return quantization_name(self.metadata, self.tensor_types)

    @property
    def context(self) -> int | None:
        """Tokens the model was trained on."""
        return self.size("context_length")

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, LongArray):
            return tokens.n
        return len(tokens) if isinstance(tokens, tuple) else self.size("vocab_size")

    @property
    def chat_template(self) -> str | None:
        """Source of the template that turns messages into a prompt."""
        return self.text("tokenizer.chat_template")

    def size(self, name: str) -> int | None:
        """A hyper-parameter, without the architecture's prefix, that is one number."""
        value = self.metadata.get(f"{self.architecture}.{name}")
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    def text(self, key: str) -> str | None:
        """A value that is a text and not empty, by its full key."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) and value else None


def inspect_model(files: Sequence[str | os.PathLike[str]]) -> ModelSummary:
    """Read what the model in `files`, the shards in order, says about itself; no weights are read.

    Raises ModelFileError if it is missing, damaged, or no language model.
    """
    file = GgufFile.open(files[0])
    engine, reason = EngineKind.PAGED, ""
    try:
        ModelPlan.from_gguf(file)
    except UnsupportedModel as unsupported:
        engine, reason = EngineKind.CONTIGUOUS, str(unsupported)
    embedding = file.tensors.get("token_embd.weight")
    return ModelSummary(
        paths=file.paths,
        n_bytes=file.n_bytes,
        metadata=file.metadata,
        architecture=file.architecture,
        tensor_types=type_shares(file.tensors.values()),
        output_bytes=embedding.n_bytes if embedding and "output.weight" not in file.tensors else 0,
        engine=engine,
        reason=reason,
        kv_bytes_per_token=kv_bytes_per_token(file.metadata),
    )


def type_shares(tensors: Iterable[TensorInfo]) -> tuple[TypeShare, ...]:
    """Tensors counted by type, those with the most data first."""
    by_type: defaultdict[int, list[TensorInfo]] = defaultdict(list)
    for tensor in tensors:
        by_type[tensor.type].append(tensor)
    shares = (
        TypeShare(
            ggml.type_name(number).decode(),
            len(group),
            sum(math.prod(tensor.shape) for tensor in group),
            sum(tensor.n_bytes for tensor in group),
        )
        for number, group in by_type.items()
    )
    return tuple(sorted(shares, key=lambda share: share.n_bytes, reverse=True))


def quantization_name(metadata: Mapping[str, object], tensor_types: Sequence[TypeShare]) -> str:
    """The mix that general.file_type names, or else the type of most of the weights; empty of a file without any."""
    file_type = metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type in _FILE_TYPE_NAMES:
        return _FILE_TYPE_NAMES[file_type]
    return max(tensor_types, key=lambda share: share.parameters).name.upper() if tensor_types else ""
