"""Safetensors files: the header checked, the tensors read one at a time.

Eight bytes hold the length of a header in JSON, which maps names to types, shapes and places in the rest of the file
(https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import NamedTuple, TypeGuard

import numpy as np

from engine.printable import quoted
from models.checkpoint_json import damaged
from models.errors import ConversionError

_MAX_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library."""

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
    return {
        name: _tensor(path, name, entry, data_start, size - data_start)
        for name, entry in header.items()
        if name != "__metadata__"
    }


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
    begin, end = place
    if begin > end or end > data_size:
        raise damaged(path, f"tensor {quoted(name)} lies beyond its end")
    if dtype in DTYPES and end - begin != math.prod(shape) * DTYPES[dtype].itemsize:
        raise damaged(path, f"the size of tensor {quoted(name)} is not that of its shape")
    return StoredTensor(path, name, dtype, tuple(shape), data_start + begin)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
