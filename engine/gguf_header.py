"""The metadata and the tensor directory of one GGUF file, read by ggml's own parser.

The format is described in ggml/include/gguf.h. Tensor data is not read here. The parser believes what a file says
about itself and reserves memory for it, so it sees only the beginning of the file, in which all that has to fit.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from engine.errors import ModelFileError
from engine.native import captured_log, library, reason_in
from engine.printable import one_line, quoted

NEWEST_VERSION = 3
"""Version of the format that this ggml writes; it also reads version 2."""

LONGEST_ARRAY = 1024
"""Elements up to which an array is copied; vocabularies are longer."""

_WINDOWS = (4 * 2**20, 16 * 2**20, 64 * 2**20)
"""Bytes of the beginning that the parser sees, more each time if that was too little. With a vocabulary of 260,000
tokens the largest headers of 2026 take 15 MiB. The parser takes up to eight times the window, for nothing but empty
texts."""

_MAGIC = b"GGUF"
_LFS_POINTER = b"version https://git-lfs"
_MAX_DIMS = 4


@dataclass(frozen=True)
class LongArray:
    """Stands for an array of more than LONGEST_ARRAY elements, of which only the length `n` is kept."""

    n: int


Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...] | LongArray

_Entry = TypeVar("_Entry")


class TensorInfo(NamedTuple):
    """One tensor of a file.

    type: enum ggml_type. shape: dimensions in ggml's order, ne[0] (contiguous) first, without trailing ones.
    offset: of the data from the start of the file, in bytes. n_bytes: size of the data.
    shard: which file it is in, 0 unless the model is split.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    offset: int
    n_bytes: int
    shard: int


@dataclass(frozen=True)
class GgufHeader:
    """What one file says about itself. size: of the file in bytes."""

    path: Path
    size: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]


def read_header(path: Path, shard: int = 0) -> GgufHeader:
    """Read the file at `path` and check that it is whole. shard: its place in a split model.

    Raises ModelFileError if it is missing or unreadable, is no GGUF of a version and byte order that ggml reads, or is
    damaged or cut short.
    """
    try:
        _check_kind(path)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            _check_beginning(path, file.read(max(8, len(_LFS_POINTER))))
            context = _parse(path, file)
    except FileNotFoundError:
        raise ModelFileError(f"There is no model file '{one_line(str(path))}': check the path.") from None
    except PermissionError:
        raise ModelFileError(f"{named(path)} may not be read by this user: check its permissions.") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{named(path)} cannot be read ({one_line(str(reason))}): check the path.") from None
    try:
        metadata = _unique(path, _read_metadata(path, context))
        tensors = _unique(path, ((tensor.name, tensor) for tensor in _read_tensors(context, shard)))
    finally:
        library.gguf_free(context)
    _check_tensors(path, size, tensors)
    return GgufHeader(path, size, metadata, tensors)


def named(path: Path) -> str:
    """A file as the subject of a sentence."""
    return f"The model file '{one_line(str(path))}'"


def _check_kind(path: Path) -> None:
    """Refuse what would block, or never end, when it is opened and read."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise ModelFileError(f"'{one_line(str(path))}' is a folder: give the path of a .gguf file in it.")
    if not stat.S_ISREG(mode):
        raise ModelFileError(f"'{one_line(str(path))}' is not a regular file: give the path of a .gguf file.")


def _check_beginning(path: Path, beginning: bytes) -> None:
    """Refuse files for which ggml has no words for people."""
    if not beginning:
        raise ModelFileError(f"{named(path)} is empty: download it again.")
    if beginning.startswith(_LFS_POINTER):
        raise ModelFileError(
            f"{named(path)} is a Git LFS pointer, not the model itself: run 'git lfs pull' where you cloned it, "
            f"or download the file."
        )
    if not beginning.startswith(_MAGIC):
        raise ModelFileError(f"{named(path)} is not a GGUF file (it begins with {_shown(beginning[:4])}).")
    if len(beginning) >= 8:
        _check_version(path, int.from_bytes(beginning[4:8], "little"))


def _shown(data: bytes) -> str:
    return quoted("".join(chr(byte) if byte < 0x80 else f"\\x{byte:02x}" for byte in data))


def _check_version(path: Path, version: int) -> None:
    if version & 0xFFFF == 0 and version:  # the bytes of a small number, in the other order
        raise ModelFileError(f"{named(path)} is in big-endian byte order: download its little-endian version.")
    if version > NEWEST_VERSION:
        raise ModelFileError(
            f"{named(path)} has GGUF version {version}, and this version of Octavo reads up to {NEWEST_VERSION}: "
            f"update Octavo."
        )
    if version < 2:
        raise ModelFileError(
            f"{named(path)} has GGUF version {version}, which is no longer read: download a newer conversion."
        )


def _parse(path: Path, file: BinaryIO) -> int:
    """Returns a gguf_context, which the caller frees."""
    for window in _WINDOWS:
        file.seek(0)
        beginning = file.read(window)
        with captured_log() as log:
            context = library.gguf_init_from_buffer(beginning, len(beginning), _InitParams(no_alloc=True, ctx=None))
        if context:
            return int(context)
        if len(beginning) < window:
            break
        del beginning  # before a larger one is read
    raise ModelFileError(f"{named(path)} is damaged or incomplete{reason_in(log)}: download it again.")


def _damaged(path: Path, what: str) -> ModelFileError:
    return ModelFileError(f"{named(path)} is damaged: {what}; download it again.")


def _unique(path: Path, entries: Iterator[tuple[str, _Entry]]) -> dict[str, _Entry]:
    """Make a mapping. ggml compares whole names, but hands them out cut at a NUL character: refuse the ambiguous."""
    result: dict[str, _Entry] = {}
    for name, value in entries:
        if name in result:
            raise _damaged(path, f"the name {quoted(name)} occurs twice")
        result[name] = value
    return result


def _check_tensors(path: Path, size: int, tensors: Mapping[str, TensorInfo]) -> None:
    for tensor in tensors.values():
        if 0 in tensor.shape:
            raise _damaged(path, f"tensor {quoted(tensor.name)} has no elements")
    end = max((tensor.offset + tensor.n_bytes for tensor in tensors.values()), default=0)
    if end > size:
        raise ModelFileError(
            f"{named(path)} was not downloaded completely: it has {size:,} bytes of {end:,}; download it again."
        )


def _read_metadata(path: Path, context: int) -> Iterator[tuple[str, Value]]:
    for index in range(library.gguf_get_n_kv(context)):
        name = _text(library.gguf_get_key(context, index))
        kinds = _KINDS.get(name)
        if kinds and _kind(context, index) not in kinds:
            raise _damaged(path, f"the value of key {quoted(name)} is of a wrong type")
        yield name, _read_value(context, index)


def _kind(context: int, index: int) -> tuple[int, ...]:
    """Type of a value, and for an array that of its elements."""
    kind = library.gguf_get_kv_type(context, index)
    return (kind,) if kind != _ARRAY else (kind, library.gguf_get_arr_type(context, index))


def _read_value(context: int, index: int) -> Value:
    kind = library.gguf_get_kv_type(context, index)
    if kind == _STRING:
        return _text(library.gguf_get_val_str(context, index))
    if kind != _ARRAY:
        return _scalars(kind, library.gguf_get_val_data(context, index), 1)[0]
    n = library.gguf_get_arr_n(context, index)
    if n > LONGEST_ARRAY:
        return LongArray(n)
    kind = library.gguf_get_arr_type(context, index)
    if kind == _STRING:
        return tuple(_text(library.gguf_get_arr_str(context, index, i)) for i in range(n))
    return _scalars(kind, library.gguf_get_arr_data(context, index), n) if n else ()


def _scalars(kind: int, address: int, n: int) -> tuple[Scalar, ...]:
    values = tuple((_C_TYPES[kind] * n).from_address(address))
    return tuple(bool(value) for value in values) if kind == _BOOL else values


def _read_tensors(context: int, shard: int) -> Iterator[TensorInfo]:
    data_offset = library.gguf_get_data_offset(context)
    for index in range(library.gguf_get_n_tensors(context)):
        shape = list(library.gguf_get_tensor_ne(context, index)[:_MAX_DIMS])
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
        yield TensorInfo(
            name=_text(library.gguf_get_tensor_name(context, index)),
            type=library.gguf_get_tensor_type(context, index),
            shape=tuple(shape),
            offset=data_offset + library.gguf_get_tensor_offset(context, index),
            n_bytes=library.gguf_get_tensor_size(context, index),
            shard=shard,
        )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# enum gguf_type
_U16, _I32, _F32, _BOOL, _STRING, _ARRAY = 2, 5, 6, 7, 8, 9
_C_TYPES: dict[int, Any] = {
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    _U16: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    _I32: ctypes.c_int32,
    _F32: ctypes.c_float,
    _BOOL: ctypes.c_int8,  # stored as a byte on every platform
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
    12: ctypes.c_double,
}

_KINDS: dict[str, set[tuple[int, ...]]] = {
    "general.architecture": {(_STRING,)},
    "split.no": {(_U16,)},
    "split.count": {(_U16,)},
    "split.tensors.count": {(_I32,)},
    "tokenizer.ggml.tokens": {(_ARRAY, _STRING)},
    "tokenizer.ggml.scores": {(_ARRAY, _F32), (_ARRAY, _I32)},
    "tokenizer.ggml.token_type": {(_ARRAY, _I32)},
    "tokenizer.ggml.merges": {(_ARRAY, _STRING)},
}
"""Types of the values that llama.cpp reads without asking what they are, or without which a file is no model."""


class _InitParams(ctypes.Structure):
    """struct gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def _declare(name: str, result: Any, *arguments: Any) -> None:
    function: Callable[..., Any] = getattr(library, name)
    function.restype = result  # type: ignore[attr-defined]
    function.argtypes = arguments  # type: ignore[attr-defined]


_Context, _Index = ctypes.c_void_p, ctypes.c_int64
_declare("gguf_init_from_buffer", _Context, ctypes.c_char_p, ctypes.c_size_t, _InitParams)
_declare("gguf_free", None, _Context)
_declare("gguf_get_data_offset", ctypes.c_size_t, _Context)
_declare("gguf_get_n_kv", ctypes.c_int64, _Context)
_declare("gguf_get_key", ctypes.c_char_p, _Context, _Index)
_declare("gguf_get_kv_type", ctypes.c_int, _Context, _Index)
_declare("gguf_get_val_str", ctypes.c_char_p, _Context, _Index)
_declare("gguf_get_val_data", ctypes.c_void_p, _Context, _Index)
_declare("gguf_get_arr_type", ctypes.c_int, _Context, _Index)
_declare("gguf_get_arr_n", ctypes.c_size_t, _Context, _Index)
_declare("gguf_get_arr_data", ctypes.c_void_p, _Context, _Index)
_declare("gguf_get_arr_str", ctypes.c_char_p, _Context, _Index, ctypes.c_size_t)
_declare("gguf_get_n_tensors", ctypes.c_int64, _Context)
_declare("gguf_get_tensor_name", ctypes.c_char_p, _Context, _Index)
_declare("gguf_get_tensor_ne", ctypes.POINTER(ctypes.c_int64), _Context, _Index)
_declare("gguf_get_tensor_type", ctypes.c_int, _Context, _Index)
_declare("gguf_get_tensor_offset", ctypes.c_size_t, _Context, _Index)
_declare("gguf_get_tensor_size", ctypes.c_size_t, _Context, _Index)
