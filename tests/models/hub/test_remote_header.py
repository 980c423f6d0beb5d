"""The keys of a GGUF file read from its beginning, also of files made to harm."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.gguf_file import GgufFile, LongArray
from engine.kv_size import kv_bytes_per_token
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile
from models.hub.remote_header import read_beginning, remote_metadata
from models.hub.repository import repository
from tests.hub_server import Hub

UINT32, STRING, ARRAY = 4, 8, 9


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def header(*keys: bytes, n: int | None = None, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(keys) if n is None else n) + b"".join(keys)


def number(name: str, value: int) -> bytes:
    return text(name) + struct.pack("<II", UINT32, value)


def test_it_agrees_with_ggml(starter_path: Path) -> None:
    whole = GgufFile.open(starter_path).metadata
    beginning = read_beginning(starter_path.read_bytes()[: 1 << 17])
    assert beginning.is_enough
    assert "llama.attention.head_count_kv" in beginning.metadata
    assert dict(beginning.metadata) == {name: whole[name] for name in beginning.metadata}
    assert kv_bytes_per_token(beginning.metadata) == kv_bytes_per_token(whole)


def test_all_keys_of_a_file_without_vocabulary(tiny_model: Callable[..., Path]) -> None:
    lists = {"floats": [0.5, 1.5], "words": ["a", "b"], "long": list(range(2000)), "flag": True}
    path = tiny_model("qwen3", keys=lists, without_keys=["tokenizer.ggml.model"])
    whole = GgufFile.open(path).metadata
    beginning = read_beginning(path.read_bytes())
    assert beginning.is_enough
    assert beginning.metadata == {name: value for name, value in whole.items() if not isinstance(value, LongArray)}
    assert whole["qwen3.long"] == LongArray(2000)


def test_every_cut_asks_for_more(tiny_model: Callable[..., Path]) -> None:
    data = tiny_model().read_bytes()
    needed = next(n for n in range(len(data)) if read_beginning(data[:n]).is_enough)
    assert needed > 100
    assert not any(read_beginning(data[:n]).is_enough for n in range(4, needed))


def test_vocabulary_before_the_hyper_parameters_is_passed_over() -> None:
    words = text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, 2000) + text("abc") * 2000
    architecture = text("general.architecture") + struct.pack("<I", STRING) + text("llama")
    beginning = read_beginning(header(words, architecture, number("llama.block_count", 3)))
    assert beginning.is_enough
    assert beginning.metadata == {"general.architecture": "llama", "llama.block_count": 3}


@pytest.mark.parametrize(
    "data",
    [
        b"not a GGUF file",
        header(version=1),
        header(version=99),
        header(text("key") + struct.pack("<I", 13)),
        header(text("key") + struct.pack("<IIQ", ARRAY, ARRAY, 1)),
        header(text("key") + struct.pack("<IIQ", ARRAY, 77, 1)),
    ],
)
def test_what_is_no_gguf(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_beginning(data)


@pytest.mark.parametrize(
    "data",
    [
        header(n=2**64 - 1),
        header(struct.pack("<Q", 2**63)),
        header(text("key") + struct.pack("<IQ", STRING, 2**64 - 1)),
        header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 2**64 - 1)),
        header(text("key") + struct.pack("<IIQ", ARRAY, UINT32, 2**64 - 1)),
        header(text("key") + struct.pack("<IIQ", ARRAY, STRING, 1024)),
    ],
)
def test_absurd_lengths_cost_nothing(data: bytes) -> None:
    assert read_beginning(data) == ({}, False)


def test_flipped_bytes_never_surprise(tiny_model: Callable[..., Path]) -> None:
    data = tiny_model().read_bytes()[:1500]
    chance = random.Random(5)
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            beginning = read_beginning(bytes(damaged))
        except ValueError:
            continue
        kv_bytes_per_token(beginning.metadata)


def remote(hub: Hub, content: bytes | Path) -> tuple[str, RemoteFile]:
    hub.add("me/m-GGUF", {"m-Q4_0.gguf": content})
    found = repository(HubReference("me/m-GGUF"))
    return found.commit, found.files[0]


def test_only_the_beginning_is_fetched(hub: Hub, starter_path: Path) -> None:
    metadata = remote_metadata("me/m-GGUF", *remote(hub, starter_path))
    assert metadata is not None
    assert kv_bytes_per_token(metadata) == 30 * 2 * 3 * 64 * 2  # SmolLM2-135M: layers, K and V, heads, size, f16
    assert [request.range for request in hub.downloads("m-Q4_0.gguf")] == ["bytes=0-131071"] * 2  # hub and CDN


def test_a_long_beginning_is_fetched_in_steps(hub: Hub, tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(keys={"description": "x" * 300_000, "license": "y" * 1_000_000})
    metadata = remote_metadata("me/m-GGUF", *remote(hub, path))
    assert metadata is not None
    assert metadata["llama.block_count"] == 2
    ranges = [request.range for request in hub.downloads("m-Q4_0.gguf") if request.host == "cdn"]
    assert ranges[:2] == ["bytes=0-131071", "bytes=131072-1048575"]
    assert len(ranges) == 3


def test_a_server_that_knows_no_ranges(hub: Hub, tiny_model: Callable[..., Path]) -> None:
    hub.fail("m-Q4_0.gguf", ignore_range=True, times=None)
    path = tiny_model(keys={"description": "x" * 300_000})
    metadata = remote_metadata("me/m-GGUF", *remote(hub, path))
    assert metadata is not None
    assert metadata["llama.block_count"] == 2


@pytest.mark.parametrize("fault", [{"status": 500}, {"cut_at": 40}, {"status": 403}])
def test_what_cannot_be_had(hub: Hub, tiny_model: Callable[..., Path], fault: dict[str, int]) -> None:
    place = remote(hub, tiny_model())
    hub.fail("m-Q4_0.gguf", times=None, **fault)
    assert remote_metadata("me/m-GGUF", *place) is None


@pytest.mark.parametrize("content", [b"", b"GG", b"<html>", header(n=10), header(n=10) + b"\0" * (5 << 20)])
def test_files_that_are_no_models(hub: Hub, content: bytes) -> None:
    place = remote(hub, content)
    result = remote_metadata("me/m-GGUF", *place)
    assert result is None or kv_bytes_per_token(result) is None
