"""The metadata and the tensor directory of a GGUF file, read by ggml's own parser.

The format is described in ggml/include/gguf.h. Tensor data is not read here.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from engine.errors import ModelFileError
from engine.native import captured_log, library, reason_in
from engine.printable import one_line, quoted

NEWEST_VERSION = 3
"""Version of the format that this ggml writes; it also reads version 2."""

LONGEST_ARRAY = 1024
"""Elements up to which an array is copied; vocabularies are longer."""

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
    """One tensor of the file.

    type: enum ggml_type. shape: dimensions in ggml's order, ne[0] (contiguous) first, without trailing ones.
    offset: of the data from the start of the file, in bytes. n_bytes: size of the data.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class GgufFile:
    """What a GGUF file says about itself. Names and values are as in the file: use `quoted` to show them."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]

    @property
    def architecture(self) -> str:
        """Value of general.architecture, such as "llama"; empty if the file does not say."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Read the directory of the file at `path`.

        Raises ModelFileError if it is missing or unreadable, is no GGUF of a version and byte order that
        ggml reads, is damaged or cut short, or is one part of a split model.
        """
        path = Path(path)
        size = _check_beginning(path)
        with captured_log() as log:
            context = library.gguf_init_from_file(os.fsencode(path), _InitParams(no_alloc=True, ctx=None))
        if not context:
            raise ModelFileError(f"{_named(path)} is damaged or incomplete{reason_in(log)}: download it again.")
        try:
            metadata = _unique(path, _read_metadata(context))
            tensors = _unique(path, ((tensor.name, tensor) for tensor in _read_tensors(context)))
        finally:
            library.gguf_free(context)
        _check_whole(path, size, metadata, tensors)
        return cls(path, MappingProxyType(metadata), MappingProxyType(tensors))


def _named(path: Path) -> str:
    return f"The model file '{one_line(str(path))}'"


def _check_beginning(path: Path) -> int:
    """Return the size of the file in bytes, after the checks for which ggml has no words for people."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise ModelFileError(f"'{one_line(str(path))}' is a folder: give the path of a .gguf file in it.")
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"'{one_line(str(path))}' is not a regular file: give the path of a .gguf file.")
        with path.open("rb") as file:
            beginning = file.read(max(8, len(_LFS_POINTER)))
    except FileNotFoundError:
        raise ModelFileError(f"There is no model file '{one_line(str(path))}': check the path.") from None
    except PermissionError:
        raise ModelFileError(f"{_named(path)} may not be read by this user: check its permissions.") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise ModelFileError(f"{_named(path)} cannot be read ({one_line(str(error))}).") from None

    if not beginning:
        raise ModelFileError(f"{_named(path)} is empty: download it again.")
    if beginning.startswith(_LFS_POINTER):
        raise ModelFileError(
            f"{_named(path)} is a Git LFS pointer, not the model itself: run 'git lfs pull' where you cloned it, "
            f"or download the file."
        )
    if not beginning.startswith(_MAGIC):
        raise ModelFileError(f"{_named(path)} is not a GGUF file (it begins with {_shown(beginning[:4])}).")
    if len(beginning) >= 8:
        _check_version(path, int.from_bytes(beginning[4:8], "little"))
    return status.st_size


def _shown(data: bytes) -> str:
    return quoted("".join(chr(byte) if byte < 0x80 else f"\\x{byte:02x}" for byte in data))


def _check_version(path: Path, version: int) -> None:
    if version & 0xFFFF == 0 and version:  # the bytes of a small number, in the other order
        raise ModelFileError(f"{_named(path)} is in big-endian byte order: download its little-endian version.")
    if version > NEWEST_VERSION:
        raise ModelFileError(
            f"{_named(path)} has GGUF version {version}, and this version of Octavo reads up to {NEWEST_VERSION}: "
            f"update Octavo."
        )
    if version < 2:
        raise ModelFileError(
            f"{_named(path)} has GGUF version {version}, which is no longer read: download a newer conversion."
        )


def _unique(path: Path, entries: Iterator[tuple[str, _Entry]]) -> dict[str, _Entry]:
    """Make a mapping. ggml compares whole names, but hands them out cut at a NUL character: refuse the ambiguous."""
    result: dict[str, _Entry] = {}
    for name, value in entries:
        if name in result:
            raise ModelFileError(f"{_named(path)} is damaged: the name {quoted(name)} occurs twice; download it again.")
        result[name] = value
    return result


def _check_whole(path: Path, size: int, metadata: Mapping[str, Value], tensors: Mapping[str, TensorInfo]) -> None:
    n_parts = metadata.get("split.count", 0)
    if isinstance(n_parts, int) and n_parts > 1:
        part = metadata.get("split.no")
        number = f"part {part + 1}" if isinstance(part, int) else "one part"
        raise ModelFileError(
            f"{_named(path)} is {number} of a model split into {n_parts} files, which is not supported yet: "
            f"join them with llama.cpp's 'llama-gguf-split --merge'."
        )
    end = max((tensor.offset + tensor.n_bytes for tensor in tensors.values()), default=0)
    if end > size:
        raise ModelFileError(
            f"{_named(path)} was not downloaded completely: it has {size:,} bytes of {end:,}; download it again."
        )


def _read_metadata(context: int) -> Iterator[tuple[str, Value]]:
    for index in range(library.gguf_get_n_kv(context)):
        yield _text(library.gguf_get_key(context, index)), _read_value(context, index)


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


def _read_tensors(context: int) -> Iterator[TensorInfo]:
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
        )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


# enum gguf_type
_BOOL, _STRING, _ARRAY = 7, 8, 9
_C_TYPES: dict[int, Any] = {
    0: ctypes.c_uint8,
    1: ctypes.c_int8,
    2: ctypes.c_uint16,
    3: ctypes.c_int16,
    4: ctypes.c_uint32,
    5: ctypes.c_int32,
    6: ctypes.c_float,
    _BOOL: ctypes.c_int8,  # stored as a byte on every platform
    10: ctypes.c_uint64,
    11: ctypes.c_int64,
    12: ctypes.c_double,
}


class _InitParams(ctypes.Structure):
    """struct gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def _declare(name: str, result: Any, *arguments: Any) -> None:
    function: Callable[..., Any] = getattr(library, name)
    function.restype = result  # type: ignore[attr-defined]
    function.argtypes = arguments  # type: ignore[attr-defined]


_Context, _Index = ctypes.c_void_p, ctypes.c_int64
_declare("gguf_init_from_file", _Context, ctypes.c_char_p, _InitParams)
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
