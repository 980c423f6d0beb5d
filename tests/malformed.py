"""GGUF files that others crashed on, hung on or believed, for every part of Octavo that opens a file.

In the spirit of llama.cpp's tests/test-gguf.cpp, and from reports of its users and those of other programs.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

U8, U16, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 4, 6, 7, 8, 9, 10
"""enum gguf_type"""


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<i", kind) + value


def array(kind: int, n: int, values: bytes) -> bytes:
    return struct.pack("<iQ", kind, n) + values


def tensor(name: bytes, shape: tuple[int, ...], kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    n_dims = len(shape) if n_dims is None else n_dims
    return text(name) + struct.pack(f"<I{len(shape)}qiQ", n_dims, *shape, kind, offset)


def gguf(
    keys: tuple[bytes, ...] = (),
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_keys: int | None = None,
    alignment: int = 32,
) -> bytes:
    n_tensors = len(tensors) if n_tensors is None else n_tensors
    n_keys = len(keys) if n_keys is None else n_keys
    head = magic + struct.pack("<Iqq", version, n_tensors, n_keys) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def split(number: int, count: int) -> tuple[bytes, bytes]:
    """Keys of part `number`, from 0, of a model in `count` files."""
    return (
        key(b"split.no", U16, struct.pack("<H", number)),
        key(b"split.count", U16, struct.pack("<H", count)),
    )


ALIGN_64 = key(b"general.alignment", U32, struct.pack("<I", 64))
MATRIX = tensor(b"a", (8, 4))
ROW = 8 * 4 * 4
"""Bytes of MATRIX, a multiple of every alignment here."""

BAD = {
    "magic": gguf(magic=b"FUGG"),
    "magic of nothing": b"\0" * 64,
    "version 0": gguf(version=0),
    "version 1": gguf(version=1),
    "version of the future": gguf(version=4),
    "big-endian": b"GGUF" + struct.pack(">Iqq", 3, 0, 0),
    "only the magic": b"GGUF",
    "only the version": b"GGUF\3\0\0\0",
    "negative number of tensors": gguf(n_tensors=-1),
    "absurd number of tensors": gguf(n_tensors=2**62),
    "more tensors than there are": gguf(tensors=(MATRIX,), n_tensors=2, data=bytes(ROW)),
    "negative number of keys": gguf(n_keys=-1),
    "absurd number of keys": gguf(n_keys=2**62),
    "more keys than there are": gguf((key(b"k", U32, bytes(4)),), n_keys=3),
    "key longer than the file": gguf((struct.pack("<Q", 2**40) + b"k",)),
    "key longer than memory": gguf((struct.pack("<Q", 2**64 - 1) + b"k",)),
    "empty key": gguf((key(b"", U32, bytes(4)),)),
    "key of unknown type": gguf((key(b"k", 13, bytes(8)),)),
    "key of negative type": gguf((key(b"k", -1, bytes(8)),)),
    "value cut off": gguf((key(b"k", U64, b"\0"),), alignment=1),
    "text longer than the file": gguf((key(b"k", STRING, struct.pack("<Q", 2**30) + b"abc"),)),
    "array of arrays": gguf((key(b"k", ARRAY, array(ARRAY, 1, array(U8, 1, b"\0"))),)),
    "array of unknown type": gguf((key(b"k", ARRAY, array(99, 1, bytes(8))),)),
    "array longer than the file": gguf((key(b"k", ARRAY, array(U32, 2**29, bytes(64))),)),
    "array longer than memory": gguf((key(b"k", ARRAY, array(U64, 2**63, bytes(64))),)),
    "array of texts longer than the file": gguf((key(b"k", ARRAY, array(STRING, 2**29, bytes(64))),)),
    "the same key twice": gguf((key(b"k", U32, bytes(4)), key(b"k", U32, bytes(4)))),
    "the same key twice, cut at NUL": gguf((key(b"k", U32, bytes(4)), key(b"k\0other", U32, bytes(4)))),
    "alignment 0": gguf((key(b"general.alignment", U32, bytes(4)),), (MATRIX,), bytes(ROW)),
    "alignment 13": gguf((key(b"general.alignment", U32, struct.pack("<I", 13)),), (MATRIX,), bytes(ROW)),
    "alignment of 2 GiB": gguf((key(b"general.alignment", U32, struct.pack("<I", 2**31)),), (MATRIX,), bytes(ROW)),
    "alignment that is a text": gguf((key(b"general.alignment", STRING, text(b"64")),), (MATRIX,), bytes(ROW)),
    "tensor name too long": gguf((), (tensor(b"a" * 64, (8, 4)),), bytes(ROW)),
    "tensor name longer than the file": gguf((), (struct.pack("<Q", 2**40) + b"a",)),
    "five dimensions": gguf((), (tensor(b"a", (2, 2, 2, 2, 2)),), bytes(ROW)),
    "absurd number of dimensions": gguf((), (tensor(b"a", (8, 4), n_dims=2**32 - 1),), bytes(ROW)),
    "negative dimension": gguf((), (tensor(b"a", (8, -4)),), bytes(ROW)),
    "too many elements": gguf((), (tensor(b"a", (2**40, 2**40)),), bytes(ROW)),
    "too many bytes": gguf((), (tensor(b"a", (2**62, 1), kind=28),), bytes(ROW)),
    "size that wraps when padded": gguf((), (tensor(b"a", (2**62 - 1, 1)), tensor(b"b", (4,))), bytes(ROW)),
    "tensor of unknown type": gguf((), (tensor(b"a", (8, 4), kind=43),), bytes(ROW)),
    "tensor of negative type": gguf((), (tensor(b"a", (8, 4), kind=-1),), bytes(ROW)),
    "tensor of a removed type": gguf((), (tensor(b"a", (32, 4), kind=4),), bytes(ROW)),
    "rows not whole blocks": gguf((), (tensor(b"a", (33, 4), kind=2),), bytes(ROW)),
    "first offset not 0": gguf((), (tensor(b"a", (8, 4), offset=32),), bytes(ROW + 32)),
    "offset past the one before": gguf((), (MATRIX, tensor(b"b", (8, 4), offset=2 * ROW)), bytes(3 * ROW)),
    "overlapping tensors": gguf((), (MATRIX, tensor(b"b", (8, 4), offset=0)), bytes(2 * ROW)),
    "the same tensor twice": gguf((), (MATRIX, tensor(b"a", (8, 4), offset=ROW)), bytes(2 * ROW)),
    "the same tensor twice, cut at NUL": gguf((), (MATRIX, tensor(b"a\0b", (8, 4), offset=ROW)), bytes(2 * ROW)),
    "offset for another alignment": gguf(
        (ALIGN_64,), (tensor(b"a", (8,)), tensor(b"b", (8,), offset=32)), bytes(128), alignment=64
    ),
    "no data": gguf((), (MATRIX,)),
    "one byte of data missing": gguf((), (MATRIX,), bytes(ROW - 1)),
    "second tensor missing": gguf((), (MATRIX, tensor(b"b", (8, 4), offset=ROW)), bytes(ROW + 4)),
    "terabytes of data missing": gguf((), (tensor(b"a", (2**40, 4)),), bytes(ROW)),
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    "empty": b"",
    "a web page": b"<!DOCTYPE html><html>",
    "88 bytes with a dimension of 0": gguf((), (tensor(b"8 bytes!", (0, 4, 1, 1)),), alignment=1),
    "dimension of 0": gguf((), (tensor(b"a", (0, 4)),), bytes(ROW)),
    "last dimension of 0": gguf((), (MATRIX, tensor(b"b", (8, 4, 0), offset=ROW)), bytes(ROW)),
    "offset that wraps": gguf((), (MATRIX, tensor(b"b", (8, 4), offset=2**64 - 32)), bytes(ROW)),
    "arrays nested deeply": gguf((key(b"k", ARRAY, struct.pack("<iQ", ARRAY, 1) * 10_000),)),
    "scores of bytes": gguf((key(b"tokenizer.ggml.scores", ARRAY, array(U8, 4, bytes(4))),)),
    "scores that are no array": gguf((key(b"tokenizer.ggml.scores", F32, bytes(4)),)),
    "tokens that are numbers": gguf((key(b"tokenizer.ggml.tokens", ARRAY, array(U32, 1, bytes(4))),)),
    "token types that are texts": gguf((key(b"tokenizer.ggml.token_type", ARRAY, array(STRING, 1, text(b"1"))),)),
    "architecture that is a number": gguf((key(b"general.architecture", U32, bytes(4)),)),
    "part of a split, of a wrong type": gguf((key(b"split.count", U32, struct.pack("<I", 2**32 - 1)),)),
    "part of a split, without a number": gguf((key(b"split.count", U16, b"\2\0"),)),
    "part of a split, beyond the last": gguf(split(7, 7)),
    "part of a split, under another name": gguf(split(0, 2)),
    "second of its parts alone-00002-of-00003": gguf(split(1, 3)),
    "first of absurdly many parts-00001-of-65535": gguf(split(0, 65535)),
}
"""What is in the file, by what is wrong with it; the names end as the files' names must."""

SPARSE = {
    "text of 1 GiB": gguf((key(b"k", STRING, struct.pack("<Q", 2**30)),)),
    "array of 1 GiB": gguf((key(b"k", ARRAY, array(U8, 2**30, b"")),)),
    "a quarter of a billion texts": gguf((key(b"k", ARRAY, array(STRING, 2**28, b"")),)),
    "a billion keys": gguf(n_keys=2**30),
    "a billion tensors": gguf(n_tensors=2**30),
    "tensors beyond the largest header": gguf((key(b"k", ARRAY, array(U8, 2**27, b"")),), n_tensors=1),
}
"""The same for files of which only the beginning is written: SPARSE_BYTES long, so that the lengths are plausible."""

SPARSE_BYTES = 16 * 2**30


def write_malformed(folder: Path, whole: Path) -> dict[str, Path]:
    """Write all of BAD and SPARSE, and the model file `whole` cut short, into `folder`; returns their paths by name."""
    content = whole.read_bytes()
    files = BAD | {"half of a model": content[: len(content) // 2], "half of a header": content[:1000]} | SPARSE
    paths = {name: folder / f"{name.replace(' ', '-')}.gguf" for name in files}
    for name, path in paths.items():
        path.write_bytes(files[name])
        if name in SPARSE:
            os.truncate(path, SPARSE_BYTES)
    return paths


HOSTILE = b"\x1b]52;c;ZXZpbA==\x07\x1b[2J\xc2\x9b31m\r\xe2\x80\xae"
"""Writes to the clipboard, clears the screen, changes colours, returns to the beginning of the line, reverses text."""
