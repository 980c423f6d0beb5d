"""Which engine runs a file, and what the user is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.config import EngineConfig, EngineKind
from engine.errors import UnsupportedModel
from engine.loader import load_engine

UNKNOWN_KEY = {"logit_scale": 0.5}
"""llama.cpp ignores it for llama; the paged engine refuses what it does not know."""


def load(path: Path, kind: EngineKind | None = None, context: int | None = None) -> tuple[str, int, str | None]:
    engine, notice, _ = load_engine(
        str(path), EngineConfig(kind, context=context, threads=1, device="CPU"), lambda _fraction: None
    )
    engine.close()
    return engine.name, engine.context, notice


def test_the_paged_engine_is_the_first_choice(tiny_model: Callable[..., Path]) -> None:
    assert load(tiny_model()) == ("paged", 256, None)


def test_the_contiguous_engine_by_name(tiny_model: Callable[..., Path]) -> None:
    assert load(tiny_model(), EngineKind.CONTIGUOUS) == ("contiguous", 256, None)


def test_falls_back_and_says_why_in_one_line(tiny_model: Callable[..., Path]) -> None:
    name, _, notice = load(tiny_model(keys=UNKNOWN_KEY))
    assert name == "contiguous"
    assert notice is not None
    assert "llama.logit_scale" in notice
    assert notice.endswith("Using the contiguous engine.")
    assert "\n" not in notice


def test_does_not_fall_back_from_what_was_asked_for(tiny_model: Callable[..., Path]) -> None:
    with pytest.raises(UnsupportedModel, match=r"llama\.logit_scale"):
        load(tiny_model(keys=UNKNOWN_KEY), EngineKind.PAGED)


@pytest.mark.parametrize("kind", EngineKind)
def test_a_context_beyond_the_training_is_said(tiny_model: Callable[..., Path], kind: EngineKind) -> None:
    _, context, notice = load(tiny_model(), kind, context=512)
    assert context == 512
    assert notice is not None
    assert "512" in notice
    assert "256" in notice
