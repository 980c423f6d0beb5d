"""What a token's keys and values take, told from the metadata of a GGUF file of any architecture.

Names and defaults follow load_hparams of llama.cpp's src/llama-model.cpp; which layers have keys and values follows
its create_memory. A layer with a sliding window is counted like one without: an upper bound. The state that recurrent
layers keep is left out, as it does not grow with the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_F16_BYTES = 2
_MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS of llama.cpp."""
_MOST = 2**20
"""Larger than any number of heads, size of a head or of an embedding."""

_FULL_ATTENTION_INTERVALS = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
"""Every how many layers attention is not recurrent, where the file does not say (llama.cpp's src/models)."""


class KvHeads(NamedTuple):
    """`n` heads of one layer: how many numbers the key and the value of each have."""

    n: int
    key: int
    value: int


def kv_heads(metadata: Mapping[str, object]) -> list[KvHeads] | None:
    """What is kept of a token in all layers; empty for a purely recurrent model.

    metadata: keys of a GGUF file with their values, arrays as tuples or lists. None when it does not say, or says
    what no model can have; never an exception.
    """
    try:
        keys = _Keys(metadata)
        # Nanbeige runs through its layers several times, each time with keys and values of its own.
        return _heads_kept(keys) * keys.size("num_loops", 1)
    except _Untold:
        return None


def kv_bytes_per_token(metadata: Mapping[str, object]) -> int | None:
    """Bytes of F16 keys and values of one token in all layers. metadata, None: as of `kv_heads`."""
    kept = kv_heads(metadata)
    return None if kept is None else _F16_BYTES * sum(heads.n * (heads.key + heads.value) for heads in kept)


class _Untold(Exception):
    """The metadata does not tell the size."""


class _Keys:
    """The hyper-parameters of a file. All methods raise _Untold for what is missing or impossible."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self.metadata = metadata
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise _Untold
        self.architecture = architecture

    def get(self, name: str) -> object:
        return self.metadata.get(f"{self.architecture}.{name}")

    def size(self, name: str, default: int | None = None, most: int = _MOST) -> int:
        """A number from 0 to `most`; without a default it must be there."""
        value = self.get(name)
        return _size(default if value is None else value, most)

    def by_layer(self, name: str, n_layers: int, default: list[int] | None = None) -> list[int]:
        """A number for every layer, from an array or from one number for all."""
        value = self.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, tuple | list):
            return [_size(value, _MOST)] * n_layers
        if len(value) != n_layers:
            raise _Untold
        return [_size(int(item) if isinstance(item, bool) else item, _MOST) for item in value]


def _size(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _Untold
    return value


def _heads_kept(keys: _Keys) -> list[KvHeads]:
    n_layers = keys.size("block_count", most=_MOST_LAYERS)
    heads = keys.by_layer("attention.head_count", n_layers)
    heads_kv = keys.by_layer("attention.head_count_kv", n_layers, heads)
    sizes = _head_sizes(keys, n_layers, heads)
    # The index of sparse attention is one more head, of keys only, wherever there is attention.
    indexer = keys.size("attention.indexer.key_length", 0)
    kept = []
    for n, (key, value), has_kv in zip(heads_kv, sizes, _attending(keys, n_layers), strict=True):
        if n and has_kv:
            kept += [KvHeads(n, key, value), KvHeads(1, indexer, 0)] if indexer else [KvHeads(n, key, value)]
    return kept


def _head_sizes(keys: _Keys, n_layers: int, heads: list[int]) -> list[tuple[int, int]]:
    """How many numbers a head's key and value have in each layer."""
    if not any(heads):
        return [(0, 0)] * n_layers
    usual = keys.size("embedding_length", 0) // next(filter(None, heads))
    key, value = keys.size("attention.key_length", usual), keys.size("attention.value_length", usual)
    key_swa = keys.size("attention.key_length_swa", key)
    value_swa = keys.size("attention.value_length_swa", value)
    if keys.size("attention.key_length_mla", 0):  # multi-head latent attention: values are a part of the keys
        value = value_swa = 0
    if key + value == 0:
        raise _Untold
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple | list) and len(pattern) == n_layers:
        return [(key_swa, value_swa) if is_windowed else (key, value) for is_windowed in pattern]
    return [max((key, value), (key_swa, value_swa), key=sum)] * n_layers


def _attending(keys: _Keys, n_layers: int) -> list[bool]:
    """Whether each layer has keys and values of its own, apart from those whose number of KV heads is 0."""
    # The last layers may predict further tokens, which llama.cpp does not ask for, or use the keys of earlier ones.
    n_own = n_layers - keys.size("nextn_predict_layers", 0) - keys.size("attention.shared_kv_layers", 0)
    if n_own < 0:
        raise _Untold
    interval = keys.size("full_attention_interval", _FULL_ATTENTION_INTERVALS.get(keys.architecture, 1))
    if interval == 0:
        raise _Untold
    usual = [int((layer + 1) % interval != 0) for layer in range(n_layers)]
    recurrent = keys.by_layer("attention.recurrent_layers", n_layers, usual)
    return [layer < n_own and not is_recurrent for layer, is_recurrent in enumerate(recurrent)]
