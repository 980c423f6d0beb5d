"""What was measured comes back from the file, whatever happens to the file."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.attention_choice import NEVER, AttentionChoice
from engine.config import KvType
from engine.gguf_file import GgufFile
from engine.kv_types import KvTypes
from engine.plan import ModelPlan
from engine.tuning import Tuning
from engine.tuning_file import recall, remember, tuning_key

TUNING = Tuning(3, AttentionChoice(unpacked_columns=128, ahead_columns=NEVER, flash=False), 256)
OTHER = Tuning(1)
THREADS = (1, 2, 3)

DAMAGED: dict[str, Callable[[str], Any]] = {
    "empty": lambda _: "",
    "no JSON": lambda text: text[: len(text) // 2],
    "no UTF-8": lambda _: b"\xff\xfe",
    "too deep": lambda _: "[" * 100_000,
    "another program's": lambda _: '["tunings"]',
    "older format": lambda text: text.replace('"format": 1', '"format": 0'),
    "no tunings": lambda _: '{"format": 1, "tunings": 7}',
    "a word for a number": lambda text: text.replace('"chunk_tokens": 256', '"chunk_tokens": "many"'),
    "a number missing": lambda text: text.replace("unpacked_columns", "columns"),
    "no threads": lambda text: text.replace('"threads": 3', '"threads": 0'),
    "threads that are no choice": lambda text: text.replace('"threads": 3', '"threads": 1000000000'),
    "an endless chunk": lambda text: text.replace('"chunk_tokens": 256', '"chunk_tokens": 1000000000'),
    "negative columns": lambda text: text.replace('"unpacked_columns": 128', '"unpacked_columns": -1'),
}


def test_it_comes_back(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "folder" / "tuning.json")
    assert recall(path, "key", THREADS) is None
    assert remember(path, "key", OTHER)
    assert remember(path, "another key", OTHER)
    assert remember(path, "key", TUNING)
    assert recall(path, "key", THREADS) == TUNING
    assert recall(path, "another key", THREADS) == OTHER
    assert recall(path, "third key", THREADS) is None


def test_it_is_the_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    remember(str(path), "key", TUNING)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_file_says_nothing_and_is_replaced(tmp_path: Path, damage: Callable[[str], Any]) -> None:
    path = tmp_path / "tuning.json"
    remember(str(path), "key", TUNING)
    content = damage(path.read_text())
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert recall(str(path), "key", THREADS) is None
    assert remember(str(path), "key", TUNING)
    assert recall(str(path), "key", THREADS) == TUNING


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert not remember(str(file / "tuning.json"), "key", TUNING)
    folder = tmp_path / "folder" / "tuning.json"
    folder.mkdir(parents=True)
    assert not remember(str(folder), "key", TUNING)
    assert recall(str(folder), "key", THREADS) is None
    assert list(folder.parent.iterdir()) == [folder]


def test_writers_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    """Four processes write, each under its own key, while this one reads: the file is valid JSON at every moment."""
    path = tmp_path / "tuning.json"
    remember(str(path), "first", TUNING)
    code = (
        "import sys; from engine.tuning import Tuning; from engine.tuning_file import remember\n"
        "for n in range(1, 101): assert remember(sys.argv[1], sys.argv[2] * 1000, Tuning(n))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(number)]) for number in range(4)]
    n_read = 0
    while any(writer.poll() is None for writer in writers):
        assert json.loads(path.read_bytes())["format"] == 1
        n_read += 1
    assert n_read
    assert [writer.returncode for writer in writers] == [0] * 4
    assert list(tmp_path.iterdir()) == [path]
    recalled = [recall(str(path), str(number) * 1000, range(1, 1000)) for number in range(4)]
    assert Tuning(100) in recalled


def test_the_key_tells_apart_what_matters(tiny_model: Callable[..., Path]) -> None:
    """Each difference alone makes another key; a second file of the same shape has the same one."""

    def key(types: KvTypes = KvTypes(), threads: tuple[int, ...] = (2, 1), cpu: str = "a", **model: Any) -> str:  # noqa: B008
        file = GgufFile.open(tiny_model(**model))
        return tuning_key(file, ModelPlan.from_gguf(file), types, threads, cpu)

    keys = [
        key(),
        key(types=KvTypes(KvType.Q8_0)),
        key(threads=(2,)),
        key(cpu="b"),
        key(layers=3),
        key(heads=8, head_dim=16),
        key(heads_kv=4),
        key(head_dim=32),
        key(embedding=128, head_dim=16),
        key(ff=128),
        key(vocab=128),
        key(weight_type="F16"),
        key(architecture="qwen2"),
    ]
    assert len(set(keys)) == len(keys)
    assert key(seed=1) == keys[0]
