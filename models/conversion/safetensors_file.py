"""Safetensors files: the header checked, the tensors read one at a time.

Eight bytes hold the length of a header in JSON, which maps names to types, shapes and places in the rest of the file
(https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np

from engine.printable import quoted
from models.conversion.checkpoint_json import damaged
from models.errors import ConversionError

_MAX_HEADER = 10_000_000
"""Bytes; ten times as many as the most layers in one file need. Parsed, they take up to thirty times as much."""
_MAX_DIMENSIONS = 4
_MAX_SIZE = 2**48
"""Of a dimension or a place: small enough to multiply, and larger than any file."""

_LFS_POINTER = b"version https://git-lfs"

DTYPES: dict[str, np.dtype[np.generic]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}
"""Types that can be read, as numpy does it; of BF16, which numpy does not have, the bits."""


class StoredTensor(NamedTuple):
    """A tensor in a file. dtype: as the file names it. shape: in numpy's order. offset: bytes from the file's start."""

    path: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int

    def read(self) -> np.ndarray:
        """Its values, of a type in DTYPES, in memory of their own.

        Raises ConversionError when the file cannot be read, or is shorter than it was.
        """
        count = math.prod(self.shape)
        try:
            values = np.fromfile(self.path, DTYPES[self.dtype], count, offset=self.offset)
        except OSError as error:
            raise ConversionError(f"{quoted(str(self.path))} cannot be read ({error.strerror}).") from None
        if values.size != count:
            raise damaged(self.path, "it was cut short while it was read")
        return values.reshape(self.shape)


def tensors_in(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name.

    Raises ConversionError if it cannot be read or is damaged.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(len(_LFS_POINTER))
            if start == _LFS_POINTER:
                raise ConversionError(
                    f"{quoted(path.name)} is a Git LFS pointer, not the file it stands for: run 'git lfs pull' in its "
                    "folder."
                )
            length = int.from_bytes(start[:8], "little")
            if len(start) < 8 or length > min(_MAX_HEADER, size - 8):
                raise damaged(path, "its header does not fit the file")
            file.seek(8)
            header = _parsed(path, file.read(length))
    except OSError as error:
        raise ConversionError(f"{quoted(str(path))} cannot be read ({error.strerror}).") from None
    data_start = 8 + length
    tensors = [
        _tensor(path, name, entry, data_start, size - data_start)
        for name, entry in header.items()
        if name != "__metadata__"
    ]
    _check_apart(tensors)
    return {tensor.name: tensor for tensor in tensors}


def _parsed(path: Path, header: bytes) -> dict[str, object]:
    try:
        entries = json.loads(header)
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise damaged(path, "its header is no JSON object")
    return entries


def _tensor(path: Path, name: str, entry: object, data_start: int, data_size: int) -> StoredTensor:
    if not isinstance(entry, dict):
        raise damaged(path, f"its header does not describe tensor {quoted(name)}")
    dtype, shape, place = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(place) or len(place) != 2:
        raise damaged(path, f"its header does not describe tensor {quoted(name)}")
    if len(shape) > _MAX_DIMENSIONS:
        raise damaged(path, f"tensor {quoted(name)} has {len(shape):,} dimensions")
    begin, end = place
    if begin > end or end > data_size:
        raise damaged(path, f"tensor {quoted(name)} lies beyond its end")
    if dtype in DTYPES and end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise damaged(path, f"the size of tensor {quoted(name)} is not that of its shape")
    return StoredTensor(path, name, dtype, tuple(shape), data_start + begin, end - begin)


def _check_apart(tensors: Sequence[StoredTensor]) -> None:
    """Raises ConversionError when two tensors share bytes: a small file could become a model of any size."""
    ordered = sorted(tensors, key=lambda tensor: (tensor.offset, tensor.n_bytes))
    for one, other in itertools.pairwise(ordered):
        if one.offset + one.n_bytes > other.offset:
            raise damaged(one.path, f"tensors {quoted(one.name)} and {quoted(other.name)} overlap")


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= _MAX_SIZE for item in value)
