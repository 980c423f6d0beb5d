"""Names that can be typed and shown."""

from __future__ import annotations

import pytest

from models.names import free_name, name_in_repository, safe_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Qwen3-4B-Q4_K_M"),
        ("llama3.2:3b", "llama3.2-3b"),
        ("My Model (v2).GGUF", "My-Model-v2"),
        ("../../etc/passwd", "etc-passwd"),
        ("\x1b[31mred\x1b[0m\u202e", "31mred-0m"),
        ("-rf", "rf"),
        (".hidden", "hidden"),
        ("тест-модель_हिन्दी", "тест-модель_हिन्दी"),
        ("caf\udce9", "caf"),
        ("a" * 5000, "a" * 200),
        ("語" * 100, "語" * 66),
        ("", "model"),
        ("...", "model"),
    ],
)
def test_safe_name(text: str, name: str) -> None:
    assert safe_name(text) == name
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("repository", "variant", "name"),
    [
        ("Qwen/Qwen3-4B-GGUF", "Q4_K_M", "Qwen3-4B-Q4_K_M"),
        ("someone/thing_gguf", "", "thing"),
        ("gguf-models", "F16", "gguf-models-F16"),
    ],
)
def test_name_in_repository(repository: str, variant: str, name: str) -> None:
    assert name_in_repository(repository, variant) == name


def test_free_name() -> None:
    assert free_name("Model", set()) == "Model"
    assert free_name("Model", {"model", "model-2"}) == "Model-3"
