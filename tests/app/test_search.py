"""`octavo search`: a table for people and JSON for programs."""

from __future__ import annotations

import json

import pytest

from tests.app.command import octavo_here
from tests.hub_server import Hub


@pytest.fixture
def filled(hub: Hub) -> Hub:
    sizes = {"Q4_K_M": 2500, "Q8_0": 4096, "BF16": 8192}
    files = {f"Qwen3-4B-{name}.gguf": bytes(size) for name, size in sizes.items()}
    hub.add("Qwen/Qwen3-4B-GGUF", files, downloads=12_345, gguf={"total": 4_022_468_096}, gated="auto")
    hub.add("evil/Qwen3-\x1b[31m", {"a.gguf": b"x"}, downloads=3)
    return hub


def test_a_table(filled: Hub) -> None:
    result = octavo_here("search", "qwen3")
    assert (result.returncode, result.stderr) == (0, "")
    titles, first, second = result.stdout.splitlines()
    assert titles.split() == ["repository", "downloads", "updated", "parameters", "Q4_K_M", "all", "sizes"]
    assert first.split() == [
        *("Qwen/Qwen3-4B-GGUF", "(gated)", "12.3k", "2025-01-02", "4.0B", "2.4", "KiB", "2.4", "KiB", "–", "8.0", "KiB")
    ]
    assert second.split() == ["evil/Qwen3-␛[31m", "3", "2025-01-02"]


def test_json(filled: Hub) -> None:
    result = octavo_here("search", "qwen3", "4b", "--json")
    assert json.loads(result.stdout) == {
        "repositories": [
            {
                "name": "Qwen/Qwen3-4B-GGUF",
                "downloads": 12_345,
                "likes": 0,
                "updated": "2025-01-02T03:04:05+00:00",
                "gated": True,
                "architecture": None,
                "parameters": 4_022_468_096,
                "variants": [
                    {"name": "Q4_K_M", "quantization": "Q4_K_M", "bytes": 2500},
                    {"name": "Q8_0", "quantization": "Q8_0", "bytes": 4096},
                    {"name": "BF16", "quantization": "BF16", "bytes": 8192},
                ],
            }
        ]
    }


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "The hub has no repository with GGUF files named 'nothing here': try fewer words."),
        ({"HF_TOKEN": "hf_wrong"}, "does not accept your token"),
    ],
)
def test_one_sentence_where_nothing_is_found(hub: Hub, variables: dict[str, str], sentence: str) -> None:
    result = octavo_here("search", "nothing", "here", variables=variables)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert sentence in line


def test_words_are_needed() -> None:
    assert octavo_here("search").returncode == 2
