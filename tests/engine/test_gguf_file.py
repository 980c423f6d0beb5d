"""Reading the directory of good GGUF files, and refusing every kind of bad one with one sentence."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf_file import GgufFile, LongArray
from engine.plan import ModelPlan
from tests.tiny_gguf import write_tiny

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10
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
}


def refusal(path: str | os.PathLike[str]) -> str:
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.endswith(".")
    assert os.path.basename(path) in message or not os.path.basename(path).isprintable()
    return message


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD[name])
    refusal(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("magic", "is not a GGUF file"),
        ("version of the future", "update Octavo"),
        ("version 1", "no longer read"),
        ("big-endian", "big-endian"),
        ("the same key twice", "duplicate key 'k'"),
        ("one byte of data missing", "not downloaded completely"),
        ("only the version", "damaged or incomplete"),
        ("Git LFS pointer", "git lfs pull"),
        ("empty", "is empty"),
    ],
)
def test_the_sentence_says_what_is_wrong(name: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(BAD[name])
    assert words in refusal(path)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    assert "There is no model file" in refusal(tmp_path / "missing.gguf")
    assert "is a folder" in refusal(tmp_path)
    assert "cannot be read" in refusal(tmp_path / "nul\0.gguf")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.gguf")
        assert "not a regular file" in refusal(tmp_path / "pipe.gguf")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(gguf())
    path.chmod(0)
    assert "permissions" in refusal(path)


def test_one_part_of_a_split_model(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(metadata={"split.no": 1, "split.count": 3})
    assert "part 2 of a model split into 3 files" in refusal(path)
    GgufFile.open(tiny_model(metadata={"split.no": 0, "split.count": 1}))


def test_terminal_escapes_from_the_file_do_not_reach_a_message(tmp_path: Path) -> None:
    path = tmp_path / "bad\x1b[31m.gguf"
    evil = b"\x1b]52;c;ZXZpbA==\x07\n\t"
    for data in (gguf((key(evil, U32, bytes(4)),) * 2), gguf((), (tensor(evil, (33,), kind=2),)), evil * 4):
        path.write_bytes(data)
        assert "␛" in refusal(path)


def test_good_files(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(
        gguf(
            (
                ALIGN_64,
                key(b"a.text", STRING, text("größe".encode())),
                key(b"a.bad text", STRING, text(b"\xff!")),
                key(b"a.yes", BOOL, b"\1"),
                key(b"a.float", F32, struct.pack("<f", 0.5)),
                key(b"a.none", ARRAY, array(U32, 0, b"")),
                key(b"a.flags", ARRAY, array(BOOL, 3, b"\1\0\1")),
                key(b"a.texts", ARRAY, array(STRING, 2, text(b"x") + text(b""))),
                key(b"a.long", ARRAY, array(U8, 1025, bytes(1025))),
            ),
            (tensor(b"v", (8,)), tensor(b"q", (32, 3), kind=2, offset=64), tensor(b"one", (1, 1), offset=128)),
            bytes(128 + 4),
            alignment=64,
        )
    )
    file = GgufFile.open(path)
    assert file.metadata == {
        "general.alignment": 64,
        "a.text": "größe",
        "a.bad text": "\ufffd!",
        "a.yes": True,
        "a.float": 0.5,
        "a.none": (),
        "a.flags": (True, False, True),
        "a.texts": ("x", ""),
        "a.long": LongArray(1025),
    }
    assert file.metadata["a.yes"] is True
    base = file.tensors["v"].offset
    assert base % 64 == 0
    assert {t.name: (t.type, t.shape, t.offset - base, t.n_bytes) for t in file.tensors.values()} == {
        "v": (0, (8,), 0, 32),
        "q": (2, (32, 3), 64, 54),
        "one": (0, (1,), 128, 4),
    }
    assert file.architecture == ""


def test_a_file_without_tensors_is_good(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    path.write_bytes(gguf((key(b"general.architecture", STRING, text(b"llama")),)))
    assert GgufFile.open(path).architecture == "llama"


def test_the_starter_model_agrees_with_the_gguf_package(starter_path: Path) -> None:
    file, reader = GgufFile.open(starter_path), GGUFReader(starter_path)
    assert {t.name: (t.tensor_type, tuple(t.shape), t.data_offset, t.n_bytes) for t in reader.tensors} == {
        t.name: (t.type, t.shape, t.offset, t.n_bytes) for t in file.tensors.values()
    }
    expected = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    for name, value in expected.items():
        if isinstance(value, list):
            value = LongArray(len(value)) if len(value) > 1024 else tuple(value)  # noqa: PLW2901
        assert file.metadata[name] == value
    assert len(file.metadata) == len(expected)


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole model whose header makes up most of its bytes."""
    return write_tiny(
        tmp_path_factory.mktemp("fuzz") / "small.gguf",
        layers=1,
        embedding=4,
        heads=2,
        heads_kv=1,
        ff=1,
        vocab=12,
        metadata={"general.languages": ["en", "de"]},
    )


@settings(derandomize=True, max_examples=400, deadline=None)
@given(data=st.data())
def test_a_damaged_header_is_read_or_refused(small_file: Path, data: st.DataObject) -> None:
    content = bytearray(small_file.read_bytes())
    header = min(tensor.offset for tensor in GgufFile.open(small_file).tensors.values())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, header - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    path = small_file.with_name("damaged.gguf")
    path.write_bytes(content[:cut])
    message = ""
    try:
        ModelPlan.from_gguf(GgufFile.open(path))
    except (ModelFileError, UnsupportedModel) as error:
        message = str(error)
    assert message.isprintable()
