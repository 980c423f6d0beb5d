"""Reading the directory of good GGUF files, and refusing every kind of bad one with one sentence."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf_file import GgufFile, LongArray
from engine.plan import ModelPlan
from tests.malformed import ALIGN_64, ARRAY, BAD, BOOL, F32, STRING, U8, U32, array, gguf, key, tensor, text
from tests.tiny_gguf import write_tiny


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
        ("dimension of 0", "tensor 'a' has no elements"),
        ("scores of bytes", "key 'tokenizer.ggml.scores' is of a wrong type"),
        ("part of a split, under another name", "original names"),
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


def test_the_starter_model_agrees_with_the_gguf_package(starter_path: Path, starter_reader: GGUFReader) -> None:
    file, fields = GgufFile.open(starter_path), starter_reader.fields
    assert {t.name: (t.tensor_type, tuple(t.shape), t.data_offset, t.n_bytes) for t in starter_reader.tensors} == {
        t.name: (t.type, t.shape, t.offset, t.n_bytes) for t in file.tensors.values()
    }
    expected = {name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")}
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
