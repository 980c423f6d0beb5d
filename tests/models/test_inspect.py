"""What a file says about itself, against the file's own writer, gguf's reader and llama.cpp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader, LlamaFileType
from llama_cpp import llama_cpp as llama

from engine.config import EngineKind
from engine.errors import ModelFileError
from models.inspect import TypeShare, inspect_model, quantization_name
from models.quantization.types import FILE_TYPES
from tests.tiny_gguf import CHATML


def test_the_starter_as_llama_cpp_and_gguf_see_it(starter_path: Path, starter_reader: GGUFReader) -> None:
    summary = inspect_model([starter_path])
    params = llama.llama_model_default_params()
    params.vocab_only = True
    model = llama.llama_model_load_from_file(str(starter_path).encode(), params)
    assert summary.vocabulary == llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    assert summary.chat_template == llama.llama_model_chat_template(model, None).decode()
    llama.llama_model_free(model)

    tensors = starter_reader.tensors
    assert summary.parameters == sum(int(tensor.n_elements) for tensor in tensors)
    n_bytes = sum(int(tensor.n_bytes) for tensor in tensors)
    assert summary.bits_per_weight == pytest.approx(8 * n_bytes / summary.parameters)
    counts = {share.name.upper(): share.n_tensors for share in summary.tensor_types}
    assert counts == {
        kind: sum(tensor.tensor_type.name == kind for tensor in tensors) for kind in ("Q4_1", "Q8_0", "F32")
    }
    assert summary.weight_bytes == n_bytes + next(
        int(tensor.n_bytes) for tensor in tensors if tensor.name == "token_embd.weight"
    )
    assert (summary.architecture, summary.quantization, summary.engine) == ("llama", "Q4_1", EngineKind.PAGED)
    assert summary.context == 8192
    assert summary.n_bytes == starter_path.stat().st_size
    assert summary.text("general.license") == "apache-2.0"


def test_a_model_with_an_output_matrix_needs_no_copy_of_its_embeddings(tiny_model: Callable[..., Path]) -> None:
    summary = inspect_model([tiny_model(tied=False)])
    assert summary.weight_bytes == sum(share.n_bytes for share in summary.tensor_types)


def test_why_the_contiguous_engine_runs_it(tiny_model: Callable[..., Path]) -> None:
    unknown = inspect_model([tiny_model("gemma3")])
    assert unknown.engine is EngineKind.CONTIGUOUS
    assert "no graph for the architecture 'gemma3'" in unknown.reason
    strange = inspect_model([tiny_model(tensors={"blk.0.extra.weight": np.zeros((4, 4), np.float32)})])
    assert strange.engine is EngineKind.CONTIGUOUS
    assert "'blk.0.extra.weight'" in strange.reason


def test_the_template_and_the_vocabulary(tiny_model: Callable[..., Path]) -> None:
    chat = inspect_model([tiny_model(tokenizer="gpt2", chat_template=CHATML)])
    assert chat.chat_template == CHATML
    assert chat.vocabulary == 272
    bare = inspect_model([tiny_model(vocab=96)])
    assert bare.chat_template is None
    assert bare.vocabulary == 96


@pytest.mark.parametrize("value", ["yes", 7.5, True, [1, 2]])
def test_values_of_the_wrong_type_are_not_told(tiny_model: Callable[..., Path], value: object) -> None:
    metadata = {"general.license": 12, "llama.rope.dimension_sections": value, "tokenizer.chat_template": 5}
    summary = inspect_model([tiny_model("gemma3", keys={"context_length": value}, metadata=metadata)])
    assert summary.context is None
    assert summary.text("general.license") is None
    assert summary.chat_template is None


def test_what_is_no_model(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="holds no language model but 'mmproj' data"):
        inspect_model([tiny_model(metadata={"general.type": "mmproj"})])
    with pytest.raises(ModelFileError, match="no model file"):
        inspect_model([tmp_path / "missing.gguf"])


def test_names_of_quantizations() -> None:
    shares = (TypeShare("q6_K", 1, 100, 82), TypeShare("f32", 9, 10, 40))
    assert quantization_name({"general.file_type": 15}, shares) == "Q4_K_M"
    for nothing in (None, 1024, -1, "Q4_K_M", 3.5, 4):
        assert quantization_name({"general.file_type": nothing}, shares) == "Q6_K"
    assert quantization_name({}, ()) == ""


def test_names_are_those_of_gguf() -> None:
    ours = {kind.ftype: kind.name for kind in FILE_TYPES}
    theirs = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 30
    assert {number: ours[number] for number in shared} == {number: theirs[number] for number in shared}
