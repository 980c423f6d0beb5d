"""A store of chats in a folder of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.storage.store import ChatStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "octavo" / "chats.db"


@pytest.fixture
def store(file: Path) -> Iterator[ChatStore]:
    with ChatStore(file) as store:
        yield store
