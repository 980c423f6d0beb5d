"""Importance matrices: how much each input of a tensor matters, which low-bit types need to spend their bits well.

llama.cpp's llama-imatrix writes them: as GGUF with, for a tensor NAME, NAME.in_sum2 (sums of squared inputs) and
NAME.counts (over how many tokens, for each expert), or formerly in a format of its own (.dat), all numbers
little-endian: n, then n times the length of the name and the name, the number of calls, the number of values and the
values, which are means times calls; then perhaps the number of chunks and the name of the text.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from engine.gguf_file import GgufFile
from engine.printable import one_line, quoted
from models.errors import QuantizeError
from models.quantization.plan import EMBEDDINGS, OUTPUT, Plan, TensorPlan
from models.quantization.types import HARD_IMATRIX_TYPES, FileType

Importances = dict[str, npt.NDArray[np.float32]]
"""For each tensor, the mean squared input at each place of a row; of one expert after the other."""

_SUMS, _COUNTS = ".in_sum2", ".counts"
_F32 = 0
_LONGEST_NAME = 1024
_MOST_VALUES = 2**24
"""Of a tensor; 2,300 experts with rows of 7,168 weights have as many."""
_WANTED_TYPES = HARD_IMATRIX_TYPES | {"iq3_xxs", "iq2_s", "iq1_m"}


def read_imatrix(path: Path) -> Importances:
    """Read a file in either format. Raises QuantizeError when it is none, or holds numbers that cannot be."""
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
            file.seek(0)
            importances = _read_gguf(path) if is_gguf else _read_old(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise QuantizeError(
            f"'{one_line(str(path))}' cannot be read as an importance matrix ({reason}): give a file that "
            "llama-imatrix wrote."
        ) from None
    if not all((np.isfinite(values) & (values >= 0)).all() for values in importances.values()):
        raise QuantizeError(
            f"The importance matrix '{one_line(str(path))}' holds values that are no means of squares: make it anew."
        )
    return importances


def _read_gguf(path: Path) -> Importances:
    file = GgufFile.open(path)
    names = [name.removesuffix(_SUMS) for name in file.tensors if name.endswith(_SUMS)]
    if not names:
        raise ValueError("it is a GGUF file of another kind")
    importances = {}
    for name in names:
        sums, counts = _array(file, name + _SUMS), _array(file, name + _COUNTS)
        if not len(counts) or len(sums) % len(counts):
            raise ValueError(f"{quoted(name)} has {len(sums):,} sums of {len(counts):,} counts")
        rows, per_row = sums.reshape(len(counts), -1), np.maximum(counts, 1)[:, None]
        importances[name] = np.where(counts[:, None] > 0, rows / per_row, np.float32(1)).astype(np.float32).ravel()
    return importances


def _array(file: GgufFile, name: str) -> npt.NDArray[np.float32]:
    tensor = file.tensors.get(name)
    if tensor is None or tensor.type != _F32:
        raise ValueError(f"{quoted(name)} is missing or not in F32")
    return np.fromfile(file.path, "<f4", tensor.n_bytes // 4, offset=tensor.offset)


def _read_old(file: BinaryIO) -> Importances:
    left = os.fstat(file.fileno()).st_size

    def taken(n_bytes: int) -> bytes:
        nonlocal left
        left -= n_bytes
        if left < 0:
            raise ValueError("it is damaged or cut short")
        return file.read(n_bytes)

    def number(most: int) -> int:
        value = int.from_bytes(taken(4), "little", signed=True)
        if not 0 <= value <= most:
            raise ValueError("it is damaged, or a file of another kind")
        return value

    n_entries = number(most=left // 12)
    importances = {}
    for _ in range(n_entries):
        name = taken(number(_LONGEST_NAME)).decode("utf-8")
        calls = number(2**31 - 1)
        values = np.frombuffer(taken(4 * number(_MOST_VALUES)), "<f4")
        importances[name] = (values / np.float32(max(1, calls))).astype(np.float32)
    if not importances:
        raise ValueError("it has no entries")
    return importances


def check_importances(plan: Plan, file_type: FileType, importances: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Raises QuantizeError when a tensor cannot do without importances and has none, or has those of another shape."""
    tensors = [tensor for tensor in plan.tensors if tensor.changes]
    if importances and not any(tensor.name in importances for tensor in plan.tensors):
        raise QuantizeError("The importance matrix names none of the model's tensors: it was made for another model.")
    unfit = [tensor for tensor in tensors if len(importances.get(tensor.name, ())) != tensor.row * tensor.n_experts]
    for tensor in unfit:
        if tensor.name in importances and tensor.name not in EMBEDDINGS:  # llama.cpp leaves these out of account
            experts = f" and there are {tensor.n_experts:,} experts" if tensor.n_experts > 1 else ""
            raise QuantizeError(
                f"The importance matrix has {len(importances[tensor.name]):,} values for {quoted(tensor.name)}, whose "
                f"rows have {tensor.row:,} weights{experts}: it was made for another model."
            )
    missing = [tensor for tensor in unfit if _needs(tensor, file_type)]
    if missing:
        raise QuantizeError(
            f"{len(missing):,} of {len(plan.tensors):,} tensors would become garbage without importances, the first is "
            f"{quoted(missing[0].name)} as {missing[0].after}: give an importance matrix that has them with --imatrix, "
            f"or choose a larger type."
        )


def _needs(tensor: TensorPlan, file_type: FileType) -> bool:
    """As llama.cpp decides, and where ggml would stop the process."""
    if tensor.name in (OUTPUT, *EMBEDDINGS):
        return tensor.after in HARD_IMATRIX_TYPES
    return tensor.after in _WANTED_TYPES or (tensor.after == "q2_K" and file_type.name == "Q2_K_S")
