"""What was sent before: kept on disk for all instances, privately, and not without bounds."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.chat.errors import StoreError
from app.chat.writing.history import PromptHistory
from tests.app.command import ROOT

WRITER = """
import sys
from pathlib import Path
from app.chat.writing.history import PromptHistory
history = PromptHistory(Path(sys.argv[1]))
for number in range(50):
    history.add(f"{sys.argv[2]} {number}")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data" / "prompts.db"


def test_prompts_outlive_the_app(file: Path) -> None:
    first = PromptHistory(file)
    for prompt in ("one", "two\nlines", "two\nlines", "one", "lone \ud800"):
        first.add(prompt)
    first.close()
    second = PromptHistory(file)
    assert second.prompts() == ["one", "two\nlines", "one", "lone \ufffd"]
    if os.name == "posix":
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in file.parent.iterdir())
    second.close()


def test_what_is_not_kept(file: Path) -> None:
    history = PromptHistory(file)
    for prompt in ("", "  \n", " secret", "x" * 100_001):
        history.add(prompt)
    assert history.prompts() == []
    history.close()


def test_the_oldest_go(file: Path) -> None:
    history = PromptHistory(file)
    for number in range(1_010):
        history.add(str(number))
    prompts = history.prompts()
    assert (len(prompts), prompts[0], prompts[-1]) == (1_000, "10", "1009")
    history.close()


def test_two_instances_lose_nothing(file: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(file), name], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        for name in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    history = PromptHistory(file)
    prompts = history.prompts()
    for name in ("a", "b"):
        assert [prompt for prompt in prompts if prompt.startswith(name)] == [f"{name} {number}" for number in range(50)]
    history.close()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "prompts.db").write_bytes(b"no database" * 1000)
    history = PromptHistory(tmp_path / "prompts.db")
    with pytest.raises(StoreError, match="prompts"):
        history.add("kept in memory")
    assert history.prompts() == ["kept in memory"]
