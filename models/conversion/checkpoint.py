"""A Hugging Face checkpoint: a folder with config.json, a tokenizer and weights in safetensors files."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.hyperparameters import MAX_LAYERS
from engine.printable import one_line, quoted
from models.conversion.checkpoint_json import JsonObject
from models.conversion.safetensors_file import StoredTensor, tensors_in
from models.conversion.vocabulary import MOST_TOKENS
from models.errors import ConversionError

_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
_DESCRIPTIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "added_tokens.json",
    "README.md",
    _INDEX,
)


class Family(NamedTuple):
    """What sets one class of models apart from the others.

    architecture: its name in GGUF. rotates_neighbours: ggml's graph of it turns dimensions (2i, 2i + 1), while
    checkpoints are for turning (i, i + n/2). qkv_bias: queries, keys and values always have biases.
    query_key_norm: queries and keys are normalised before they are rotated.
    """

    architecture: str
    rotates_neighbours: bool = False
    qkv_bias: bool = False
    query_key_norm: bool = False


FAMILIES = {
    "LlamaForCausalLM": Family("llama", rotates_neighbours=True),
    "MistralForCausalLM": Family("llama", rotates_neighbours=True),
    "Qwen2ForCausalLM": Family("qwen2", qkv_bias=True),
    "Qwen3ForCausalLM": Family("qwen3", query_key_norm=True),
}
"""By the class that config.json names."""


@dataclass(frozen=True)
class Config:
    """What config.json says about a model of one of FAMILIES.

    tied: the output is the token embedding; None is not said. attention_bias: queries, keys, values and the output of
    attention have biases. values: the whole object, for what only one reader needs.
    """

    family: Family
    n_layer: int
    embedding: int
    feed_forward: int
    n_head: int
    n_head_kv: int
    head_dim: int
    vocabulary: int
    context_train: int
    norm_epsilon: float
    tied: bool | None
    attention_bias: bool
    mlp_bias: bool
    values: JsonObject


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a Hugging Face model; `read_config` then says whether it can be converted."""
    return (folder / "config.json").is_file()


def checkpoint_files(names: Sequence[str]) -> list[str]:
    """Those of a repository's files that a conversion reads; weights that are there twice are taken once."""
    shards = sorted(name for name in names if _SHARD.fullmatch(name))
    weights = shards if _INDEX in names and shards else fnmatch.filter(names, "model.safetensors") or shards
    return [name for name in _DESCRIPTIONS if name in names] + weights


def checkpoint_name(folder: Path) -> str:
    """What to call the model in `folder`: in the cache of huggingface_hub the repository's name."""
    path = Path(os.path.abspath(folder))
    if path.parent.name == "snapshots":
        return path.parent.parent.name.rpartition("--")[2]
    return path.name


def read_config(folder: Path) -> Config:
    """Read config.json. Raises ConversionError if it is damaged, or the model is none that is converted."""
    values = JsonObject.read(folder / "config.json")
    name = checkpoint_name(folder)
    classes = [item for item in values.array("architectures") if isinstance(item, str)]
    family = next((FAMILIES[item] for item in classes if item in FAMILIES), None)
    if family is None:
        what = f"of the class {quoted(classes[0])}" if classes else "of no class that it names"
        raise ConversionError(
            f"{quoted(name)} is a model {what}, which is not converted here: look with 'octavo search "
            f"{one_line(name)}' for a repository that carries GGUF files."
        )
    if values.nested("quantization_config").values:
        method = values.nested("quantization_config").text("quant_method", "an unnamed method")
        raise ConversionError(
            f"{quoted(name)} is quantized already, by {quoted(method)}: convert the checkpoint that it was made from, "
            f"or look with 'octavo search {one_line(name)}' for a repository that carries GGUF files."
        )
    return _config(family, values)


def _config(family: Family, values: JsonObject) -> Config:
    n_head = values.whole("num_attention_heads")
    n_head_kv = values.whole("num_key_value_heads", n_head)
    n_layer = values.whole("num_hidden_layers")
    embedding = values.whole("hidden_size")
    head_dim = values.whole("head_dim", max(embedding // n_head, 1))
    vocabulary = values.whole("vocab_size")
    if n_layer > MAX_LAYERS or vocabulary > MOST_TOKENS:
        raise values.damaged(f"it is of a model with {n_layer:,} layers and {vocabulary:,} tokens")
    if n_head % n_head_kv:
        raise values.damaged(f"its {n_head} attention heads cannot share {n_head_kv} KV heads evenly")
    if head_dim % 2:
        raise values.damaged(f"its head size {head_dim} is odd")
    if values.text("hidden_act", "silu") != "silu":
        raise ConversionError(
            f"The activation {quoted(values.text('hidden_act'))} is not one that llama.cpp uses here."
        )
    return Config(
        family=family,
        n_layer=n_layer,
        embedding=embedding,
        feed_forward=values.whole("intermediate_size"),
        n_head=n_head,
        n_head_kv=n_head_kv,
        head_dim=head_dim,
        vocabulary=vocabulary,
        context_train=values.whole("max_position_embeddings"),
        norm_epsilon=values.number("rms_norm_eps", 1e-6),
        tied=values.flag("tie_word_embeddings"),
        attention_bias=bool(values.flag("attention_bias")),
        mlp_bias=bool(values.flag("mlp_bias")),
        values=values,
    )


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of all weight files by name.

    Raises ConversionError if there are none, or if files or tensors that the index names are missing or damaged.
    """
    if (folder / _INDEX).is_file():
        return _indexed(folder, JsonObject.read(folder / _INDEX).nested("weight_map"))
    names = checkpoint_files([path.name for path in folder.glob("*.safetensors") if path.is_file()])
    if not names:
        raise ConversionError(
            f"{quoted(checkpoint_name(folder))} has no weights that can be converted: only files called "
            "'model.safetensors' or 'model-00001-of-00002.safetensors' and so on are read."
        )
    return {name: tensor for file in names for name, tensor in tensors_in(folder / file).items()}


def _indexed(folder: Path, index: JsonObject) -> dict[str, StoredTensor]:
    files = {name: index.text(name) for name in index.values}
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(set(files.values())):
        if os.path.basename(file) != file or not file.endswith(".safetensors"):
            raise index.damaged(f"it names {quoted(file)} as a file of weights")
        if not (folder / file).is_file():
            raise ConversionError(
                f"{quoted(checkpoint_name(folder))} lacks its file {quoted(file)}: download it again."
            )
        tensors |= tensors_in(folder / file)
    missing = next((name for name in files if name not in tensors), None)
    if missing:
        raise index.damaged(f"its files do not hold tensor {quoted(missing)}")
    return tensors
