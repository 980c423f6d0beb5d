"""What quantizing a model will do to each of its tensors, as the dry run tells, and what crosses to the process for it.

Plain data only, so that both sides of the pipe can hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from models.quantization.types import FileType

OUTPUT, EMBEDDINGS = "output.weight", ("token_embd.weight", "per_layer_token_embd.weight")
"""Names of tensors to which llama.cpp gives types of their own."""

_F32 = "f32"
_UNQUANTIZED = frozenset({_F32, "f16", "bf16", "f64", "i8", "i16", "i32", "i64"})


class TensorPlan(NamedTuple):
    """One tensor: `before` and `after` are ggml types such as "q4_K". falls_back: `after` is a substitute for the type
    that was wanted, because the row, of `row` weights, does not divide into its blocks. n_experts: how many matrices
    it is, each with importances of its own.
    """

    name: str
    row: int
    n_experts: int
    n_weights: int
    before: str
    after: str
    bytes_before: int
    bytes_after: int
    falls_back: bool

    @property
    def changes(self) -> bool:
        """Whether the tensor is computed anew, and not copied."""
        return self.before != self.after

    @property
    def is_quantized_again(self) -> bool:
        """Whether the tensor has lost something already, and will change all the same."""
        return self.changes and self.before not in _UNQUANTIZED

    @property
    def work_bytes(self) -> int:
        """Memory to compute it in one piece: what is read, its weights in F32, what is written."""
        floats = 0 if self.before == _F32 else 4 * self.n_weights
        return self.bytes_before + floats + self.bytes_after if self.changes else self.bytes_before


@dataclass(frozen=True)
class Plan:
    """What becomes of every tensor. overhead: bytes of the files that are no tensor data."""

    tensors: tuple[TensorPlan, ...]
    overhead: int

    @property
    def bytes_before(self) -> int:
        """Of the source, all shards together."""
        return self.overhead + sum(tensor.bytes_before for tensor in self.tensors)

    @property
    def bytes_after(self) -> int:
        """Of the file that will be written, to within a few hundred bytes."""
        return self.overhead + sum(tensor.bytes_after for tensor in self.tensors)

    @property
    def bits_before(self) -> float:
        """Bits per weight of the source."""
        return 8 * sum(tensor.bytes_before for tensor in self.tensors) / self.n_weights

    @property
    def bits_after(self) -> float:
        """Bits per weight of the file that will be written."""
        return 8 * sum(tensor.bytes_after for tensor in self.tensors) / self.n_weights

    @property
    def n_weights(self) -> int:
        """Parameters of the model."""
        return sum(tensor.n_weights for tensor in self.tensors)

    @property
    def fallbacks(self) -> tuple[TensorPlan, ...]:
        """Tensors that get another type than the one wanted."""
        return tuple(tensor for tensor in self.tensors if tensor.falls_back)

    @property
    def fallback_share(self) -> float:
        """The part of all weights that is in `fallbacks`, from 0 to 1."""
        return sum(tensor.n_weights for tensor in self.fallbacks) / self.n_weights

    @property
    def changes(self) -> bool:
        """Whether any tensor is computed anew."""
        return any(tensor.changes for tensor in self.tensors)

    def work_bytes(self, limit: int) -> int:
        """Memory needed at most, when large tensors are computed in pieces of `limit` bytes."""
        return min(limit, max(tensor.work_bytes for tensor in self.tensors))


def type_counts(types: Iterable[str]) -> str:
    """How many there are of each, for people: "150 q5_0, 31 q8_0"."""
    return ", ".join(f"{count:,} {name}" for name, count in Counter(types).most_common())


@dataclass(frozen=True)
class Settings:
    """What the user asked for. output_type, embedding_type: ggml types, None is the file type's own choice.

    pure: every tensor in the file type's base. imatrix: file of importances, see models/quantization/imatrix.py.
    """

    type: FileType
    threads: int
    pure: bool = False
    output_type: str | None = None
    embedding_type: str | None = None
    imatrix: Path | None = None


@dataclass(frozen=True)
class DryRun:
    """Asks for the Plan of `source`, the first shard."""

    source: Path
    settings: Settings


@dataclass(frozen=True)
class Write:
    """Asks for the file `out`; tensors are computed in pieces of at most `piece` bytes of memory."""

    source: Path
    out: Path
    settings: Settings
    piece: int


@dataclass(frozen=True)
class Compare:
    """Asks for the Quality of `made` against `source`."""

    source: Path
    made: Path
    threads: int


Job = DryRun | Write | Compare


class Step(NamedTuple):
    """A report on the way: `done` of `total` are finished, and `name` is next."""

    done: int
    total: int
    name: str
