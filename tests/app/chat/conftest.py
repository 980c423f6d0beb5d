"""The chat app in tests has folders of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that has the data, config and cache folders of this test."""
    for name in ("data", "config", "cache"):
        monkeypatch.setenv(f"OCTAVO_{name.upper()}_DIR", str(tmp_path / "octavo" / name))
    return tmp_path / "octavo"
