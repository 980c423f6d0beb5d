"""From a checkpoint to GGUF: the logits are those of the checkpoint, computed in numpy from its own definition."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader

from engine.gguf_file import GgufFile
from models.conversion.convert import Conversion
from models.errors import ConversionError
from models.quantization.plan import Settings
from models.quantization.quantize import make_plan
from models.quantization.types import find_type
from tests.app.command import ROOT
from tests.engine.recording import RecordingEngine
from tests.reference import LlamaDecode
from tests.tiny_checkpoint import (
    Checkpoint,
    convert,
    sentencepiece_model,
    write_checkpoint,
    write_empty_safetensors,
    write_safetensors,
)
from tests.transformers_forward import forward

LLAMA_3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama 3, tied, BF16, three files": {
        "dtype": "BF16",
        "shards": 3,
        "config": {"tie_word_embeddings": True, "rope_theta": 500000.0, "rope_scaling": LLAMA_3_ROPE},
    },
    "llama, biases": {"config": {"attention_bias": True, "mlp_bias": True}},
    "llama, rope_parameters": {"config": {"rope_theta": None, "rope_parameters": LLAMA_3_ROPE | {"rope_theta": 1e4}}},
    "mistral, F16, two files": {
        "model_class": "MistralForCausalLM",
        "dtype": "F16",
        "shards": 2,
        "tokenizer": sentencepiece_model(),
        "config": {"head_dim": 32, "sliding_window": 4096, "bos_token_id": 1},
    },
    "mistral, linear rope": {
        "model_class": "MistralForCausalLM",
        "config": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    },
    "qwen2, tied, BF16, two files": {
        "model_class": "Qwen2ForCausalLM",
        "dtype": "BF16",
        "shards": 2,
        "config": {"tie_word_embeddings": True, "rope_theta": 1e6},
    },
    "qwen2, YaRN": {"model_class": "Qwen2ForCausalLM", "config": {"rope_scaling": YARN}},
    "qwen2, YaRN with a factor of its own": {
        "model_class": "Qwen2ForCausalLM",
        "config": {"rope_scaling": YARN | {"attention_factor": 1.5}},
    },
    "qwen2, YaRN of two magnitudes": {
        "model_class": "Qwen2ForCausalLM",
        "config": {"rope_scaling": YARN | {"mscale": 2.0, "mscale_all_dim": 1.0}},
    },
    "qwen3, wide heads, F16": {"model_class": "Qwen3ForCausalLM", "dtype": "F16", "config": {"head_dim": 32}},
    "qwen3, tied": {"model_class": "Qwen3ForCausalLM", "config": {"tie_word_embeddings": True}},
}

BOUNDS = {"F32": 1e-9, "F16": 1e-5, "BF16": 1e-3}
"""Normalised mean square error allowed: ggml rounds what it multiplies a weight with to the weight's type."""

PROMPT = [(7 * i * i + 3 * i) % 256 for i in range(100)]


def made(tmp_path: Path, **options: Any) -> tuple[Checkpoint, Path]:
    checkpoint, out = write_checkpoint(tmp_path / "model", **options), tmp_path / "model.gguf"
    convert(checkpoint.folder, out)
    return checkpoint, out


def nmse(actual: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean((actual - expected) ** 2) / np.mean(expected**2))


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_logits_are_those_of_the_checkpoint(tmp_path: Path, options: dict[str, Any]) -> None:
    checkpoint, path = made(tmp_path, **options)
    expected = forward(checkpoint, PROMPT)
    bound = BOUNDS[options.get("dtype", "F32")]
    with LlamaDecode(path) as reference:
        assert nmse(reference.decode(PROMPT), expected) < bound
    paged = RecordingEngine(path)
    try:
        request = paged.follow(PROMPT, [0])
        paged.run()
        assert nmse(paged.logits(request)[0], expected[-1]) < max(bound, 1e-5)  # its cache is F16
    finally:
        paged.close()


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_matrices_keep_their_type_and_vectors_are_f32(tmp_path: Path, dtype: str) -> None:
    checkpoint, path = made(tmp_path, model_class="Qwen2ForCausalLM", dtype=dtype)
    tensors = GGUFReader(path).tensors
    assert len(tensors) == len(checkpoint.tensors)
    for tensor in tensors:
        assert tensor.tensor_type == GGMLQuantizationType[dtype if len(tensor.shape) > 1 else "F32"]
    (embedding,) = (tensor for tensor in tensors if tensor.name == "token_embd.weight")
    values = gguf.dequantize(embedding.data, embedding.tensor_type)
    assert np.array_equal(values, checkpoint.tensors["model.embed_tokens.weight"])


def test_a_tied_output_is_not_written_again(tmp_path: Path) -> None:
    config = {"tie_word_embeddings": True}
    checkpoint = write_checkpoint(tmp_path / "model", config=config)
    repeated = checkpoint.tensors | {"lm_head.weight": checkpoint.tensors["model.embed_tokens.weight"]}
    write_safetensors(checkpoint.folder / "model.safetensors", repeated, "F32")
    convert(checkpoint.folder, tmp_path / "model.gguf")
    assert "output.weight" not in GgufFile.open(tmp_path / "model.gguf").tensors


def test_it_says_where_the_model_comes_from(tmp_path: Path) -> None:
    folder = tmp_path / "models--someone--Tiny-1B" / "snapshots" / "0123abcd"
    write_checkpoint(folder, dtype="BF16")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\nbase_model: someone/Tiny-Base\n---\n# Tiny\n")
    convert(folder, tmp_path / "model.gguf")
    metadata = GgufFile.open(tmp_path / "model.gguf").metadata
    assert metadata["general.name"] == "Tiny-1B"
    assert metadata["general.license"] == "apache-2.0"
    assert metadata["general.base_model.0.repo_url"] == "https://huggingface.co/someone/Tiny-Base"
    assert metadata["general.file_type"] == gguf.LlamaFileType.MOSTLY_BF16
    assert metadata["general.size_label"] == "96K"


def test_a_readme_that_is_no_yaml_does_no_harm(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    (checkpoint.folder / "README.md").write_text("---\nlicense: [\n---\n")
    convert(checkpoint.folder, tmp_path / "model.gguf")
    assert "general.license" not in GgufFile.open(tmp_path / "model.gguf").metadata


def test_progress_ends_with_all_bytes_of_the_tensors(tmp_path: Path) -> None:
    checkpoint, seen = write_checkpoint(tmp_path / "model"), []
    convert(checkpoint.folder, tmp_path / "model.gguf", lambda done, total: seen.append((done, total)))
    total = sum(array.nbytes for array in checkpoint.tensors.values())
    assert len(seen) == len(checkpoint.tensors)
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    checkpoint, out = write_checkpoint(tmp_path / "model"), tmp_path / "model.gguf"
    with pytest.raises(KeyboardInterrupt):
        convert(checkpoint.folder, out, interrupt)
    assert os.listdir(tmp_path) == ["model"]


def test_all_but_the_weights_comes_first(tmp_path: Path) -> None:
    """As a file of its full size, from which llama.cpp can tell what quantizing it would do."""
    checkpoint = write_checkpoint(tmp_path / "model", dtype="F16", config={"rope_scaling": LLAMA_3_ROPE})
    out = tmp_path / "model.gguf"
    with Conversion(checkpoint.folder, out) as conversion:
        outline = GgufFile.open(out)
        plan = make_plan(out, Settings(find_type("Q8_0"), 1))
        conversion.fill(lambda done, total: None)
    whole = GgufFile.open(out)
    assert (outline.n_bytes, outline.metadata) == (whole.n_bytes, whole.metadata)
    assert outline.tensors == whole.tensors
    assert {tensor.name: tensor.before for tensor in plan.tensors} == {
        tensor.name: tensor.tensor_type.name.lower() for tensor in GGUFReader(out).tensors
    }


@pytest.mark.parametrize("limit", [10_000, 200_000], ids=["in the metadata", "before the weights"])
def test_a_disk_that_fills_up(tmp_path: Path, limit: int) -> None:
    checkpoint, out = write_checkpoint(tmp_path / "model"), tmp_path / "model.gguf"
    resource = pytest.importorskip("resource")
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))
    try:
        with pytest.raises(ConversionError, match=r"model\.gguf\.part' cannot be written \(File too large\)"):
            convert(checkpoint.folder, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs a device that is full")
def test_a_disk_that_fills_up_under_the_weights(tmp_path: Path) -> None:
    """numpy reports it without a number."""
    checkpoint = write_checkpoint(tmp_path / "model")
    with Conversion(checkpoint.folder, tmp_path / "model.gguf") as conversion:
        full = os.open("/dev/full", os.O_WRONLY)
        (stream,) = conversion._writer.fout
        os.dup2(full, stream.fileno())
        os.close(full)
        with pytest.raises(ConversionError, match=r"cannot be written \((the disk is full|No space left on device)\)"):
            conversion.fill(lambda done, total: None)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process's memory from /proc")
def test_memory_stays_near_the_largest_tensor(tmp_path: Path) -> None:
    """A model of 112 MiB whose largest tensors are of 4 MiB; its weights are a hole in the file."""
    config = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 7, "num_key_value_heads": 4}
    checkpoint = write_checkpoint(tmp_path / "model", config=config | {"num_hidden_layers": 0})
    values = checkpoint.config | config
    (checkpoint.folder / "config.json").write_text(json.dumps(values))
    write_empty_safetensors(checkpoint.folder / "model.safetensors", values)
    program = f"""
from pathlib import Path
from models.conversion.convert import Conversion

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])

start = peak()
with Conversion(Path({str(checkpoint.folder)!r}), Path({str(tmp_path / "out.gguf")!r})) as conversion:
    conversion.fill(lambda done, total: None)
print(peak() - start)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=ROOT, check=True)
    assert (tmp_path / "out.gguf").stat().st_size > 110 * 2**20
    assert int(result.stdout) < 16 * 1024
