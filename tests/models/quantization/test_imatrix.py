"""Importance matrices in both formats, and what quantizing does with them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from models.errors import QuantizeError
from models.quantization.imatrix import read_imatrix
from models.quantization.plan import DryRun, Settings, Write
from models.quantization.process import QuantizeProcess
from models.quantization.quantize import check_settings, validate
from models.quantization.types import FILE_TYPES, FileType, find_type
from tests.tiny_gguf import write_tiny

Sums = Mapping[str, tuple[np.ndarray, np.ndarray]]


def write_gguf(path: Path, sums: Sums) -> Path:
    """As llama-imatrix writes it: by tensor, sums of squares [experts, row] and counts [experts]."""
    writer = GGUFWriter(path, "imatrix")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", ["text.txt"])
    writer.add_uint32("imatrix.chunk_count", 3)
    writer.add_uint32("imatrix.chunk_size", 512)
    for name, (squares, counts) in sums.items():
        writer.add_tensor(f"{name}.in_sum2", squares.astype(np.float32))
        writer.add_tensor(f"{name}.counts", counts.reshape(-1, 1).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_old(path: Path, entries: Mapping[str, tuple[int, np.ndarray]]) -> Path:
    content = struct.pack("<i", len(entries))
    for name, (calls, values) in entries.items():
        content += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(values))
        content += values.astype("<f4").tobytes()
    path.write_bytes(content + struct.pack("<ii", 3, 8) + b"text.txt")
    return path


def test_sums_become_means(tmp_path: Path) -> None:
    squares, counts = np.array([[2.0, 4.0], [3.0, 9.0], [5.0, 5.0]]), np.array([2, 3, 0])
    path = write_gguf(tmp_path / "imatrix.gguf", {"blk.0.ffn_up.weight": (squares, counts)})
    expected = [1, 2, 1, 3, 1, 1]  # an expert that no token went to counts everything alike
    assert read_imatrix(path)["blk.0.ffn_up.weight"].tolist() == expected


def test_the_old_format(tmp_path: Path) -> None:
    path = write_old(tmp_path / "imatrix.dat", {"a": (2, np.array([2.0, 6.0])), "b": (0, np.array([5.0]))})
    read = read_imatrix(path)
    assert {name: values.tolist() for name, values in read.items()} == {"a": [1, 3], "b": [5]}


def test_nothing_at_all(tmp_path: Path) -> None:
    with pytest.raises(QuantizeError, match="has no entries"):
        read_imatrix(write_old(tmp_path / "imatrix.dat", {}))


@pytest.mark.parametrize("length", [0, 3, 4, 9, 13, 20, 24])
def test_an_old_file_that_is_cut(tmp_path: Path, length: int) -> None:
    path = write_old(tmp_path / "imatrix.dat", {"ab": (2, np.array([2.0, 6.0]))})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(QuantizeError, match="cannot be read as an importance matrix"):
        read_imatrix(path)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("no matrix at all, but a text of some length")
    with pytest.raises(QuantizeError, match="of another kind"):
        read_imatrix(tmp_path / "text.txt")
    with pytest.raises(QuantizeError, match="of another kind"):
        read_imatrix(write_tiny(tmp_path / "model.gguf"))
    for value in (np.inf, np.nan, -1.0):
        sums = {"a.weight": (np.array([[value, 1.0]]), np.array([1]))}
        with pytest.raises(QuantizeError, match="no means of squares"):
            read_imatrix(write_gguf(tmp_path / "imatrix.gguf", sums))


def test_a_large_file_of_another_kind_is_not_read(tmp_path: Path) -> None:
    """Such as a model in another format, given by mistake; this one is of a terabyte."""
    path = tmp_path / "model.bin"
    path.write_bytes(struct.pack("<iii", 2**20, 2**30, 7))
    os.truncate(path, 2**40)
    with pytest.raises(QuantizeError, match="of another kind"):
        read_imatrix(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("imatrix") / "tiny-F16.gguf"
    return write_tiny(path, layers=1, embedding=256, heads=2, heads_kv=1, head_dim=16, ff=32, weight_type="F16")


@pytest.fixture(scope="module")
def imatrix(source: Path) -> Path:
    """Of every matrix but the embeddings, as llama-imatrix sees none of their inputs."""
    rng = np.random.default_rng(0)
    names = [tensor.name for tensor in GGUFReader(source).tensors if len(tensor.shape) > 1]
    rows = {name: 32 if "attn_output" in name or "ffn_down" in name else 256 for name in names if "blk." in name}
    sums = {name: (rng.uniform(1, 9, (1, row)), np.array([4])) for name, row in rows.items()}
    return write_gguf(source.with_name("imatrix.gguf"), sums)


@pytest.fixture(scope="module")
def process() -> Iterator[QuantizeProcess]:
    """One for all types: the tables of some take seconds to compute."""
    with QuantizeProcess() as process:
        yield process


def _settings(file_type: FileType | str, **options: Any) -> Settings:
    return Settings(find_type(file_type) if isinstance(file_type, str) else file_type, 1, **options)


@pytest.mark.parametrize(
    "file_type", [kind for kind in FILE_TYPES if kind.needs_imatrix], ids=lambda file_type: file_type.name
)
def test_types_that_need_one(
    file_type: FileType, source: Path, imatrix: Path, tmp_path: Path, process: QuantizeProcess
) -> None:
    with pytest.raises(QuantizeError, match="--imatrix"):
        check_settings(_settings(file_type))
    settings = _settings(file_type, imatrix=imatrix)
    check_settings(settings)
    out = tmp_path / "out.gguf"
    plan = process.run(DryRun(source, settings))
    if file_type.name not in ("Q2_K_S", "IQ2_XXS"):
        return  # the tables of the others take seconds to compute
    process.run(Write(source, out, settings, 0))
    validate(out, plan)
    fields = GGUFReader(out).fields
    assert fields["quantize.imatrix.file"].contents() == "imatrix.gguf"
    assert fields["quantize.imatrix.entries_count"].contents() == 7


def test_importances_change_the_result(source: Path, imatrix: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    files = []
    for matrix in (None, imatrix):
        files.append(tmp_path / f"{len(files)}.gguf")
        process.run(Write(source, files[-1], _settings("Q4_K_S", imatrix=matrix), 0))
    without, with_them = ({tensor.name: tensor.data for tensor in GGUFReader(file).tensors} for file in files)
    differing = {name for name in without if not np.array_equal(without[name], with_them[name])}
    assert differing == {name for name in without if name.startswith("blk.") and "norm" not in name}


def test_importances_of_another_model(source: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    names = write_old(tmp_path / "names.dat", {"blk.99.attn_q.weight": (1, np.ones(256))})
    with pytest.raises(QuantizeError, match="names none of the model's tensors"):
        process.run(DryRun(source, _settings("IQ2_M", imatrix=names)))
    for n in (300, 512):  # llama.cpp would stop in the middle of writing
        shapes = write_old(tmp_path / "shapes.dat", {"blk.0.attn_q.weight": (1, np.ones(n))})
        with pytest.raises(QuantizeError, match=rf"{n} values for 'blk\.0\.attn_q\.weight', whose rows have 256"):
            process.run(DryRun(source, _settings("IQ2_M", imatrix=shapes)))


def test_importances_that_are_missing(source: Path, imatrix: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    """Found before anything is written, where llama.cpp would stop in the middle, or with its whole process."""
    few = write_old(tmp_path / "few.dat", {"blk.0.attn_q.weight": (1, np.ones(256))})
    with pytest.raises(QuantizeError, match=r"would become garbage .* 'blk\.0\."):
        process.run(DryRun(source, _settings("IQ2_M", imatrix=few)))
    with pytest.raises(QuantizeError, match=r"'token_embd\.weight' as iq1_s|'output\.weight' as iq1_s"):
        process.run(DryRun(source, _settings("IQ1_S", imatrix=imatrix, pure=True)))


def test_a_long_name_is_cut_where_a_character_ends(source: Path, imatrix: Path, process: QuantizeProcess) -> None:
    named = imatrix.with_name(os.fsdecode(b"\xff" + "é".encode() * 100))
    os.link(imatrix, named)
    out = imatrix.with_name("named.gguf")
    process.run(Write(source, out, _settings("Q4_0", imatrix=named), 0))
    name = GGUFReader(out).fields["quantize.imatrix.file"].contents()
    assert name.startswith("<U+DCFF>éé")
    assert 0 < 127 - len(name.encode()) < 2
