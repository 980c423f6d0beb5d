"""Checkpoints that cannot be converted: one sentence each, and nothing is written."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models.conversion.checkpoint import checkpoint_files, is_checkpoint
from models.conversion.convert import Conversion, check_convertible
from models.errors import ConversionError
from tests.tiny_checkpoint import (
    Checkpoint,
    byte_level_tokenizer,
    convert,
    sentencepiece_model,
    write_checkpoint,
    write_safetensors,
)

WEIGHTS = "model.safetensors"


def edit(name: str, **values: Any) -> Callable[[Checkpoint], None]:
    """Change values of a JSON file; a value of ... is removed."""

    def change(checkpoint: Checkpoint) -> None:
        path = checkpoint.folder / name
        old = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({key: value for key, value in (old | values).items() if value is not ...}))

    return change


def write(name: str, content: bytes) -> Callable[[Checkpoint], None]:
    return lambda checkpoint: (checkpoint.folder / name).write_bytes(content) and None


def remove(name: str) -> Callable[[Checkpoint], None]:
    return lambda checkpoint: (checkpoint.folder / name).unlink()


def reheader(change: Callable[[dict[str, Any]], object]) -> Callable[[Checkpoint], None]:
    """Change the header of the weights; the data stays."""

    def rewrite(checkpoint: Checkpoint) -> None:
        data = (checkpoint.folder / WEIGHTS).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        (checkpoint.folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return rewrite


def cut(checkpoint: Checkpoint) -> None:
    data = (checkpoint.folder / WEIGHTS).read_bytes()
    (checkpoint.folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def long(checkpoint: Checkpoint) -> None:
    os.truncate(checkpoint.folder / "config.json", 100_000_001)


def without(name: str) -> Callable[[Checkpoint], None]:
    def rewrite(checkpoint: Checkpoint) -> None:
        tensors = {key: array for key, array in checkpoint.tensors.items() if key != name}
        write_safetensors(checkpoint.folder / WEIGHTS, tensors, "F32")

    return rewrite


def with_one_more(checkpoint: Checkpoint) -> None:
    tensors = checkpoint.tensors | {"model.layers.0.self_attn.q_proj.bias": checkpoint.tensors["model.norm.weight"]}
    write_safetensors(checkpoint.folder / WEIGHTS, tensors, "F32")


NORM = "model.norm.weight"
FAST = {"low_freq_factor": 4.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

REFUSED: dict[str, tuple[Callable[[Checkpoint], None], str]] = {
    "another class": (
        edit("config.json", architectures=["GPTNeoXForCausalLM"]),
        "of the class 'GPTNeoXForCausalLM', which is not converted here: look with 'octavo search model'",
    ),
    "no class": (edit("config.json", architectures=...), "'model' is a model of no class that it names"),
    "quantized by GPTQ": (
        edit("config.json", quantization_config={"quant_method": "gptq", "bits": 4}),
        "is quantized already, by 'gptq'",
    ),
    "config is no JSON": (write("config.json", b"{'a': 1}"), "'config.json' is damaged: it is not JSON"),
    "config is a list": (write("config.json", b"[]"), "'config.json' is damaged: it is no JSON object"),
    "config is too long": (long, "'config.json' is damaged: it has more than 100,000,000 bytes"),
    "config is too deep": (write("config.json", b"[" * 200_000), "'config.json' is damaged"),
    "config is not UTF-8": (write("config.json", b'{"a": "\xff"}'), "'config.json' is damaged: it is not JSON"),
    "no hidden_size": (edit("config.json", hidden_size=...), "'config.json' is damaged: it has no 'hidden_size'"),
    "heads as a text": (edit("config.json", num_attention_heads="4"), "'num_attention_heads' is not a whole number"),
    "no heads": (edit("config.json", num_attention_heads=0), "'num_attention_heads' is not a whole number from 1"),
    "too many layers": (edit("config.json", num_hidden_layers=10**6), "a model with 1,000,000 layers"),
    "too many tokens": (edit("config.json", vocab_size=2**31 - 1), "2,147,483,647 tokens"),
    "uneven KV heads": (edit("config.json", num_key_value_heads=3), "4 attention heads cannot share 3 KV heads"),
    "an odd head": (edit("config.json", head_dim=15), "its head size 15 is odd"),
    "infinite epsilon": (edit("config.json", rms_norm_eps=float("inf")), "'rms_norm_eps' is not a number above 0"),
    "another activation": (edit("config.json", hidden_act="gelu"), "activation 'gelu'"),
    "longrope": (edit("config.json", rope_scaling={"type": "longrope"}), "rope parameters of type 'longrope'"),
    "no factor": (edit("config.json", rope_scaling={"type": "linear"}), "it has no 'factor'"),
    "a factor below 1": (edit("config.json", rope_scaling={"type": "linear", "factor": 0.5}), "factor is 0.5"),
    "rope by layer": (
        edit("config.json", rope_parameters={"full_attention": {"rope_theta": 1e6}}),
        "rope parameters that differ from layer to layer",
    ),
    "half a head rotated": (edit("config.json", partial_rotary_factor=0.5), "leave a part of each head unrotated"),
    "frequencies upside down": (
        edit("config.json", rope_scaling={"rope_type": "llama3", "factor": 8.0, **FAST}),
        "'low_freq_factor' is not below",
    ),
    "other YaRN limits": (
        edit("config.json", rope_scaling={"type": "yarn", "factor": 4.0, "beta_fast": 16}),
        "other limits than 32 and 1",
    ),
    "shapes disagree": (
        edit("config.json", hidden_size=128, head_dim=16),
        r"'model.embed_tokens.weight' of the checkpoint is 268×64, but its 'config.json' asks for 268×128",
    ),
    "a tensor is missing": (without("model.layers.1.mlp.up_proj.weight"), "has no tensor 'model.layers.1.mlp.up_proj"),
    "no output": (without("lm_head.weight"), "has no tensor 'lm_head.weight'"),
    "a tensor too many": (with_one_more, "a tensor 'model.layers.0.self_attn.q_proj.bias' that its configuration"),
    "no weights": (remove(WEIGHTS), "'model' has no weights that can be converted"),
    "empty": (write(WEIGHTS, b""), "'model.safetensors' is damaged: its header does not fit the file"),
    "absurd header length": (write(WEIGHTS, b"\xff" * 100), "its header does not fit the file"),
    "header is no JSON": (write(WEIGHTS, struct.pack("<Q", 4) + b"nope"), "its header is no JSON object"),
    "header is a number": (write(WEIGHTS, struct.pack("<Q", 1) + b"1"), "its header is no JSON object"),
    "a Git LFS pointer": (
        write(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"),
        "Git LFS pointer",
    ),
    "cut in half": (cut, "'model.safetensors' is damaged: tensor '.*' lies beyond its end"),
    "an entry is a number": (reheader(lambda header: header.update({NORM: 1})), f"does not describe tensor '{NORM}'"),
    "negative offsets": (
        reheader(lambda header: header[NORM].update(data_offsets=[-8, 256])),
        f"does not describe tensor '{NORM}'",
    ),
    "enormous offsets": (
        reheader(lambda header: header[NORM].update(data_offsets=[2**64, 2**64 + 256])),
        f"does not describe tensor '{NORM}'",
    ),
    "a shape that takes hours to multiply": (
        reheader(lambda header: header[NORM].update(shape=[2**40] * 400_000)),
        f"tensor '{NORM}' has 400,000 dimensions",
    ),
    "tensors that overlap": (
        reheader(lambda header: header[NORM].update(data_offsets=[256, 512])),
        f"tensors '.*' and '{NORM}' overlap|tensors '{NORM}' and '.*' overlap",
    ),
    "offsets upside down": (reheader(lambda header: header[NORM].update(data_offsets=[256, 0])), "lies beyond its end"),
    "another size": (reheader(lambda header: header[NORM].update(shape=[63])), f"size of tensor '{NORM}' is not that"),
    "FP8": (
        reheader(lambda header: header[NORM].update(dtype="F8_E4M3")),
        f"'{NORM}' of the checkpoint is stored as 'F8_E4M3', and only F32, F16 and BF16",
    ),
    "no tokenizer": (remove("tokenizer.json"), "'model' has no tokenizer that can be converted"),
    "tokenizer is no JSON": (write("tokenizer.json", b"{"), "'tokenizer.json' is damaged: it is not JSON"),
    "no merges": (edit("tokenizer.json", model=byte_level_tokenizer(merges=[])["model"]), "it has no merges"),
    "a merge of three": (
        edit("tokenizer.json", model=byte_level_tokenizer(merges=[["a", "b", "c"]])["model"]),
        "one of its merges is no pair",
    ),
    "a token id is a text": (
        edit("tokenizer.json", model=byte_level_tokenizer(vocab={"a": "0"})["model"]),
        "its 'a' is not a whole number from 0",
    ),
    "more tokens than rows": (
        edit("tokenizer.json", model=byte_level_tokenizer(vocab={"a": 268})["model"]),
        "has 269 tokens, more than the 268 of the model",
    ),
    "a token twice": (
        edit("tokenizer.json", added_tokens=[{"id": 267, "content": "hello", "special": True}]),
        "has the token 'hello' twice, as number 259 and 267",
    ),
    "a lone surrogate": (
        edit("tokenizer.json", added_tokens=[{"id": 267, "content": "\ud800", "special": True}]),
        "text that is not Unicode",
    ),
    "a terminal escape": (
        edit("config.json", architectures=["\x1b[31mRed"]),
        "of the class '␛.31mRed'",
    ),
    "ends that are lists": (
        edit("config.json", eos_token_id=[[2], {}]),
        "does not say which token ends a text",
    ),
    "no sentencepiece": (write("tokenizer.model", b"\n\xff\xff\xff\xff\x0f"), "it is no sentencepiece model"),
    "sentencepiece cut short": (
        write("tokenizer.model", sentencepiece_model()[:1000]),
        "'tokenizer.model' is damaged: it is no sentencepiece model",
    ),
    "template is no text": (edit("tokenizer_config.json", chat_template=7), "its 'chat_template' is not a text"),
}


@pytest.mark.parametrize(("damage", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(tmp_path: Path, damage: Callable[[Checkpoint], None], message: str) -> None:
    checkpoint, out = write_checkpoint(tmp_path / "model"), tmp_path / "out.gguf"
    damage(checkpoint)
    with pytest.raises(ConversionError, match=message) as caught:
        convert(checkpoint.folder, out)
    assert str(caught.value).isprintable()
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("model-00002-of-00003.safetensors"), "'model' lacks its file 'model-00002-of-00003.safetensors'"),
        (edit("model.safetensors.index.json", weight_map={"a": "model-00001-of-00003.safetensors"}), "tensor 'a'"),
        (edit("model.safetensors.index.json", weight_map={"a": "../other.safetensors"}), "it names '../other.saf"),
        (edit("model.safetensors.index.json", weight_map={"a": 1}), "its 'a' is not a text"),
    ],
    ids=["a file is missing", "a tensor is missing", "a file elsewhere", "a number for a file"],
)
def test_refused_in_several_files(tmp_path: Path, damage: Callable[[Checkpoint], None], message: str) -> None:
    checkpoint, out = write_checkpoint(tmp_path / "model", shards=3), tmp_path / "out.gguf"
    damage(checkpoint)
    with pytest.raises(ConversionError, match=message):
        convert(checkpoint.folder, out)
    assert os.listdir(tmp_path) == ["model"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    with pytest.raises(ConversionError, match=r"missing/out.gguf' cannot be written \(No such file or directory\)"):
        Conversion(checkpoint.folder, tmp_path / "missing" / "out.gguf")


@pytest.mark.parametrize("name", ["another class", "longrope", "a merge of three", "quantized by GPTQ"])
def test_much_is_known_before_the_weights_are_there(tmp_path: Path, name: str) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    (checkpoint.folder / WEIGHTS).unlink()
    check_convertible(checkpoint.folder)
    damage, message = REFUSED[name]
    damage(checkpoint)
    with pytest.raises(ConversionError, match=message):
        check_convertible(checkpoint.folder)


def test_files_that_a_conversion_needs() -> None:
    described = ["config.json", "tokenizer.json", "tokenizer_config.json", "README.md"]
    other = ["original/consolidated.00.pth", "consolidated.safetensors", "pytorch_model.bin", "sub/config.json"]
    shards = [f"model-{number:05}-of-00002.safetensors" for number in (2, 1)]
    assert set(checkpoint_files([*other, *described, WEIGHTS])) == {*described, WEIGHTS}
    index = WEIGHTS + ".index.json"
    assert set(checkpoint_files([*other, *described, *shards, index])) == {*described, *shards, index}
    assert set(checkpoint_files([*shards, index, WEIGHTS])) == {*shards, index}


def test_what_is_a_checkpoint(tmp_path: Path) -> None:
    assert is_checkpoint(write_checkpoint(tmp_path / "model").folder)
    assert not is_checkpoint(tmp_path)
