"""Models split into several files: NAME-00001-of-00003.gguf and so on, as llama.cpp's gguf-split names them."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SHARD = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>(?!00000)\d{5})(?P<suffix>\.gguf)?$", re.IGNORECASE)


def without_shard_number(name: str) -> str:
    """The name of a file, with or without .gguf, without the part that only tells its place among the shards."""
    match = _SHARD.match(name)
    return match["stem"] + (match["suffix"] or "") if match else name


def shard_names(name: str) -> tuple[str, ...]:
    """The names of all shards of the model to which a file called `name` belongs; just `name` if it is whole."""
    match = _SHARD.match(name)
    if not match:
        return (name,)
    count = int(match["count"])
    return tuple(f"{match['stem']}-{number:05}-of-{count:05}{match['suffix'] or ''}" for number in range(1, count + 1))


def shards_of(file: Path) -> tuple[Path, ...]:
    """Paths of all shards of the model to which `file` belongs, whether they exist or not."""
    return tuple(file.with_name(name) for name in shard_names(file.name))


def first_shards(folder: Path) -> list[Path]:
    """The .gguf files in `folder` that an engine can be given: whole models and first shards, by name."""
    files = sorted(folder.glob("[!.]*.gguf"))  # hidden ones are no models: macOS adds ._NAME to copies on other disks
    return [file for file in files if os.path.isfile(file) and shard_names(file.name)[0] == file.name]
