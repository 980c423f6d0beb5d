"""Every type that needs no importance matrix, on a tiny model: planned, written, read back and run by both engines."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.gguf_file import GgufFile
from engine.native import llama
from engine.sequence import Request, SamplingParams, TokenEvent
from models.errors import QuantizeError
from models.part_file import PartFile
from models.quantization.plan import DryRun, Plan, Settings, Step, Write
from models.quantization.process import QuantizeProcess
from models.quantization.quantize import (
    check_output,
    check_plan,
    describe_fallbacks,
    keep_converted,
    make_plan,
    validate,
    write_file,
)
from models.quantization.types import FILE_TYPES, FileType, find_type
from tests.engine.recording import RecordingEngine
from tests.reference import F16, LlamaDecode
from tests.split_gguf import split_gguf
from tests.tiny_gguf import write_tiny

PROMPT = tuple(range(40, 52))
ANSWER = (60, 61, 62)
_NEAR = 1e-2
"""Normalised mean square error allowed where inputs are rounded to 8 bits for products with quantized weights."""
_UNKNOWN_TO_GGUF = "Q2_0"


def settings(name: str, **options: Any) -> Settings:
    return Settings(find_type(name), 1, **options)


def allow(plan: Plan, chosen: Settings, out: Path, **options: bool) -> None:
    check_plan(plan, chosen, out, **{"allow_requantize": False, "strict": False, "is_converted": False} | options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quantize")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """Rows of 256 weights, so that every type applies; several layers, so that mixtures mix."""
    path = folder / "tiny-F16.gguf"
    return write_tiny(path, layers=4, embedding=256, heads=8, heads_kv=1, ff=256, tokenizer="gpt2", weight_type="F16")


@pytest.fixture(scope="module")
def odd_source(folder: Path) -> Path:
    """Rows of 96 and of 256 weights: the former divide into blocks of 32 and into no larger ones."""
    path = folder / "odd-F16.gguf"
    return write_tiny(path, embedding=96, head_dim=32, heads=8, ff=256, tokenizer="gpt2", weight_type="F16")


@pytest.fixture(scope="module")
def process() -> Iterator[QuantizeProcess]:
    with QuantizeProcess() as process:
        yield process


@pytest.mark.parametrize(
    "file_type", [kind for kind in FILE_TYPES if not kind.needs_imatrix], ids=lambda file_type: file_type.name
)
def test_every_type_is_written_as_planned_and_runs(
    file_type: FileType, source: Path, folder: Path, process: QuantizeProcess
) -> None:
    chosen = Settings(file_type, 1)
    out = folder / f"{file_type.name}.gguf"
    plan = process.run(DryRun(source, chosen))
    process.run(Write(source, out, chosen, 0))
    validate(out, plan)
    assert abs(out.stat().st_size - plan.bytes_after) < 1024
    assert plan.fallbacks == ()
    if file_type.name != _UNKNOWN_TO_GGUF:
        assert types_in(out) == {tensor.name: tensor.after.upper() for tensor in plan.tensors}
    assert_runs_in_both_engines(out)
    out.unlink()


def types_in(path: Path) -> dict[str, str]:
    """As gguf reads them."""
    return {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(path).tensors}


def assert_runs_in_both_engines(path: Path) -> None:
    """The paged engine's logits are llama.cpp's; the contiguous one generates."""
    with contextlib.closing(RecordingEngine(path)) as paged:
        request = paged.follow(PROMPT, ANSWER)
        paged.run()
        rows = paged.logits(request)
    with LlamaDecode(path, kv_type=F16) as oracle:
        expected = oracle.decode(PROMPT + ANSWER[:-1])[len(PROMPT) - 1 :]
    assert np.mean((rows - expected) ** 2) <= _NEAR * np.mean(expected**2)
    with contextlib.closing(
        ContiguousEngine(str(path), EngineConfig(context=256, threads=1), lambda _: None)
    ) as engine:
        engine.submit(Request(PROMPT, SamplingParams(temperature=0), max_tokens=3))
        drawn = []
        while engine.has_work():
            drawn += [event for event in engine.step() if isinstance(event, TokenEvent) and event.token_id is not None]
    assert len(drawn) == 3


@pytest.mark.parametrize("name", ["Q4_K_M", "Q6_K", "Q4_0", "IQ4_XS", "TQ2_0", "Q8_0"])
def test_fallbacks_are_those_in_the_file(name: str, odd_source: Path, folder: Path, process: QuantizeProcess) -> None:
    out = folder / "fallbacks.gguf"
    plan = process.run(DryRun(odd_source, settings(name)))
    process.run(Write(odd_source, out, settings(name), 0))
    blocks = {"Q4_0": 32, "Q8_0": 32}.get(name, 256)
    expected = {
        tensor.name
        for tensor in GGUFReader(out).tensors
        if len(tensor.shape) > 1 and tensor.shape[0] % blocks and tensor.shape[0] == 96
    }
    if name == "Q4_0":
        expected = {"output.weight"}  # it would be q6_K, in blocks of 256
    assert {tensor.name for tensor in plan.fallbacks} == expected
    types = types_in(out)
    assert all(types[name] in ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL") for name in expected)
    if expected:
        with pytest.raises(QuantizeError, match=rf"{len(expected)} of 21 tensors .* --strict"):
            allow(plan, settings(name), out, strict=True)
    else:
        allow(plan, settings(name), out, strict=True)


def test_fallbacks_in_words(odd_source: Path, process: QuantizeProcess) -> None:
    plan = process.run(DryRun(odd_source, settings("Q4_K_M")))
    assert 0.5 < plan.fallback_share < 1
    assert "rows of 96 weights" in describe_fallbacks(plan)
    again = process.run(DryRun(odd_source, settings("Q4_0")))
    assert describe_fallbacks(again).startswith("1 of 21 tensors (")
    assert describe_fallbacks(again).endswith("(1 q8_0)")


def test_pure_and_chosen_types(source: Path, process: QuantizeProcess) -> None:
    plan = process.run(DryRun(source, settings("Q4_K_M", pure=True)))
    assert {tensor.after for tensor in plan.tensors} == {"f32", "q4_K"}
    plan = process.run(DryRun(source, settings("Q4_K_M", output_type="q8_0", embedding_type="q5_0")))
    after = {tensor.name: tensor.after for tensor in plan.tensors}
    assert (after["output.weight"], after["token_embd.weight"]) == ("q8_0", "q5_0")
    assert plan.fallbacks == ()


def test_a_chosen_type_that_does_not_fit(odd_source: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    """llama.cpp itself would write a file that cannot be read."""
    with pytest.raises(QuantizeError, match=r"output\.weight have 96 weights.*256 that q6_K.*--output-type"):
        process.run(DryRun(odd_source, settings("Q8_0", output_type="q6_K")))
    layered = {"per_layer_token_embd.weight": np.ones((8, 96))}
    path = write_tiny(tmp_path / "layered.gguf", embedding=256, tensors=layered)
    with pytest.raises(QuantizeError, match=r"per_layer_token_embd\.weight have 96 weights.*--embedding-type"):
        process.run(DryRun(path, settings("Q8_0", embedding_type="q6_K")))


def test_a_chosen_type_that_would_be_ignored(tmp_path: Path, process: QuantizeProcess) -> None:
    tied = write_tiny(tmp_path / "tied.gguf", tied=True)
    with pytest.raises(QuantizeError, match="--embedding-type instead of --output-type"):
        process.run(DryRun(tied, settings("F16", output_type="q8_0")))
    plan = process.run(DryRun(tied, settings("F16", embedding_type="q8_0")))
    assert {tensor.name: tensor.after for tensor in plan.tensors}["token_embd.weight"] == "q8_0"


def test_what_llama_cpp_has_no_substitute_for(odd_source: Path, process: QuantizeProcess) -> None:
    with pytest.raises(QuantizeError, match=r"no tensor type fallback is defined for type q1_0"):
        process.run(DryRun(odd_source, settings("Q1_0")))


def test_a_quantized_source_needs_leave(folder: Path, process: QuantizeProcess) -> None:
    quantized = write_tiny(folder / "again.gguf", embedding=256, ff=256, weight_type="Q8_0")
    plan = process.run(DryRun(quantized, settings("Q4_K_M")))
    with pytest.raises(QuantizeError, match=r"16 q8_0 .* --allow-requantize") as raised:
        allow(plan, settings("Q4_K_M"), folder / "out.gguf")
    assert "loses more" in str(raised.value)
    allow(plan, settings("Q4_K_M"), folder / "out.gguf", allow_requantize=True)
    with pytest.raises(QuantizeError, match="No tensor of the source would change"):
        allow(process.run(DryRun(quantized, settings("Q8_0"))), settings("Q8_0"), folder / "out.gguf")


def test_a_disk_that_is_too_small(
    source: Path, folder: Path, process: QuantizeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = process.run(DryRun(source, settings("Q8_0")))
    monkeypatch.setattr("models.quantization.quantize.free_disk", lambda _out: plan.bytes_after - 1)
    with pytest.raises(QuantizeError, match="make room"):
        allow(plan, settings("Q8_0"), folder / "out.gguf")


def test_the_source_is_not_the_output(source: Path, folder: Path) -> None:
    link = folder / "link.gguf"
    link.symlink_to(source)
    with pytest.raises(QuantizeError, match="is the source itself"):
        check_output(source, link)
    with pytest.raises(QuantizeError, match="is a folder"):
        check_output(source, folder)
    with pytest.raises(QuantizeError, match="no folder"):
        check_output(source, folder / "none" / "out.gguf")


def test_an_alignment_of_its_own(folder: Path, process: QuantizeProcess) -> None:
    """llama.cpp aligns to 32 and would leave the source's word for it in the metadata: an unreadable file."""
    odd = write_aligned(folder / "aligned.gguf", write_tiny(folder / "plain.gguf", ff=128, vocab=99), 256)
    assert GgufFile.open(odd).metadata["general.alignment"] == 256
    out = folder / "aligned-Q8_0.gguf"
    process.run(Write(odd, out, settings("Q8_0"), 0))
    with LlamaDecode(odd) as before, LlamaDecode(out) as after:
        expected, rows = before.decode(PROMPT), after.decode(PROMPT)
    assert np.mean((rows - expected) ** 2) <= _NEAR * np.mean(expected**2)


def write_aligned(path: Path, model: Path, alignment: int) -> Path:
    """The tensors of a model without vocabulary, each at a multiple of `alignment`."""
    reader = GGUFReader(model)
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_split_source_becomes_one_file(source: Path, folder: Path, process: QuantizeProcess) -> None:
    whole, joined = folder / "whole.gguf", folder / "joined.gguf"
    plan = process.run(DryRun(source, settings("Q4_K_M")))
    process.run(Write(source, whole, settings("Q4_K_M"), 0))
    shards = split_gguf(source, 15)
    split_plan = process.run(DryRun(shards[0], settings("Q4_K_M")))
    assert {tensor.name: tensor for tensor in split_plan.tensors} == {tensor.name: tensor for tensor in plan.tensors}
    process.run(Write(shards[0], joined, settings("Q4_K_M"), 0))
    one, other = GGUFReader(whole), GGUFReader(joined)
    assert not any(name.startswith("split.") for name in other.fields)
    data = {tensor.name: tensor.data for tensor in one.tensors}
    assert all(np.array_equal(tensor.data, data[tensor.name]) for tensor in other.tensors)


@pytest.mark.parametrize("name", ["Q4_K_M", "IQ4_XS", "Q8_0"])
def test_the_file_is_the_one_that_llama_cpp_makes_by_itself(
    name: str, source: Path, folder: Path, process: QuantizeProcess
) -> None:
    """In whatever pieces it is made."""
    direct, pieces = folder / "direct.gguf", folder / "pieces.gguf"
    params = llama.llama_model_quantize_default_params()
    params.ftype = find_type(name).ftype
    assert llama.llama_model_quantize(os.fsencode(source), os.fsencode(direct), ctypes.byref(params)) == 0
    process.run(Write(source, pieces, settings(name), 10_000))
    assert pieces.read_bytes() == direct.read_bytes()


def test_progress_is_by_tensor(source: Path, folder: Path, process: QuantizeProcess) -> None:
    steps: list[Step] = []
    plan = process.run(DryRun(source, settings("Q8_0")))
    process.run(Write(source, folder / "steps.gguf", settings("Q8_0"), 0), steps.append)
    assert [step.done for step in steps] == list(range(len(plan.tensors)))
    assert {step.name for step in steps} == {tensor.name for tensor in plan.tensors}
    assert {step.total for step in steps} == {len(plan.tensors)}


def test_an_earlier_output_outlives_a_failure(source: Path, tmp_path: Path) -> None:
    """What happens in the middle: here, an interrupt."""
    out = tmp_path / "out.gguf"
    out.write_bytes(b"earlier")
    plan = make_plan(source, settings("Q8_0"))

    def stop(step: Step) -> None:
        if step.done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(source, out, settings("Q8_0"), plan, stop)
    assert os.listdir(tmp_path) == ["out.gguf"]
    assert out.read_bytes() == b"earlier"
    write_file(source, out, settings("Q8_0"), plan, lambda _: None)
    assert os.listdir(tmp_path) == ["out.gguf"]
    validate(out, plan)


@pytest.mark.parametrize(
    ("number", "cause"), [(signal.SIGKILL, "memory ran out"), (signal.SIGBUS, "cut short meanwhile")]
)
def test_a_process_that_is_killed(source: Path, number: signal.Signals, cause: str) -> None:
    with QuantizeProcess() as process:
        os.kill(process._process.pid, number)
        with pytest.raises(QuantizeError, match=f"ended by {number.name}, perhaps because .*{cause}.*; nothing was"):
            process.run(DryRun(source, settings("Q8_0")))


def test_a_failed_check_of_native_code(tmp_path: Path) -> None:
    """More layers than llama.cpp has room for: it aborts its process, and says why."""
    path = write_tiny(tmp_path / "deep.gguf", keys={"block_count": 600})
    with pytest.raises(QuantizeError, match="a failed check of its own") as raised:
        make_plan(path, settings("Q8_0"))
    (details,) = raised.value.__notes__
    assert "GGML_ASSERT" in details


def test_what_is_written_is_read_back(source: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    plan = process.run(DryRun(source, settings("Q8_0")))
    out = tmp_path / "out.gguf"
    process.run(Write(source, out, settings("Q8_0"), 0))
    with pytest.raises(QuantizeError, match="differs from its own plan in 30 tensors"):
        validate(out, process.run(DryRun(source, settings("Q4_0", pure=True))))
    os.truncate(out, out.stat().st_size - 100)
    with pytest.raises(QuantizeError, match="cannot be read"):
        validate(out, plan)


def test_a_converted_file_that_needs_no_change_is_kept(source: Path, tmp_path: Path, process: QuantizeProcess) -> None:
    plan = process.run(DryRun(source, settings("F16")))
    assert not plan.changes
    allow(plan, settings("F16"), tmp_path / "out.gguf", is_converted=True)
    with PartFile(tmp_path / "out.gguf", replaces=True, stage=".converted") as part:
        part.part.write_bytes(source.read_bytes())
        keep_converted(part, plan)
    assert os.listdir(tmp_path) == ["out.gguf"]
    assert (tmp_path / "out.gguf").read_bytes() == source.read_bytes()
