"""Copies of model files in the models folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

from engine.printable import one_line
from engine.units import format_bytes
from models.disk import free_bytes
from models.errors import CopyError
from models.folders import models_folder
from models.part_file import PartFile, remove_abandoned

_CHUNK = 16 * 2**20
"""Bytes between two calls of `progress`: some 10 ms from memory, 150 ms from a slow disk."""


def copy_model(files: Sequence[Path], name: str, progress: Callable[[int, int], None]) -> tuple[Path, ...]:
    """Copy `files`, the shards in order, to NAME.gguf in the models folder, or NAME-00001-of-00003.gguf …

    progress: called with the bytes done and the bytes in total; what it raises stops the copy. They appear when all are
    whole, and never replace a file. Raises CopyError if the disk is full, a file of that name exists, or another
    command is just writing one.
    """
    folder = models_folder()
    if len(files) == 1:
        targets = [folder / f"{name}.gguf"]
    else:
        targets = [folder / f"{name}-{number:05}-of-{len(files):05}.gguf" for number in range(1, len(files) + 1)]
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        remove_abandoned(folder)
        total = sum(os.path.getsize(file) for file in files)
        _check_room(folder, total)
        _copy(files, targets, total, progress)
    except OSError as error:
        raise CopyError(
            f"'{one_line(str(files[0]))}' could not be copied to '{one_line(str(folder))}' "
            f"({error.strerror or error}): check both, or import it without --copy."
        ) from None
    return tuple(targets)


def _check_room(folder: Path, total: int) -> None:
    free = free_bytes(folder)
    if free < total:
        raise CopyError(
            f"The copy needs {format_bytes(total)} and '{one_line(str(folder))}' has {format_bytes(free)} free: make "
            "room, or import it without --copy."
        )


def _copy(files: Sequence[Path], targets: Sequence[Path], total: int, progress: Callable[[int, int], None]) -> None:
    for target in targets:
        if os.path.lexists(target):
            raise CopyError(f"There is already a file '{one_line(str(target))}': give another name.")
    done = 0
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(PartFile(target)) for target in targets]
        for file, part in zip(files, parts, strict=True):
            with file.open("rb", buffering=0) as source:
                while n := _copy_chunk(source, part.stream):
                    done += n
                    progress(done, total)
        if done != total:
            raise CopyError(f"'{one_line(str(files[0]))}' changed while it was copied: import it when it is complete.")
        for part in reversed(parts):  # the first shard last: a model is found by it
            part.finish()


def _copy_chunk(source: FileIO, target: FileIO) -> int:
    """Copy the next bytes and return their number; file systems that can share the blocks of two files do that."""
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):  # not between these file systems
            n = os.copy_file_range(source.fileno(), target.fileno(), _CHUNK)
            if n:
                return n
    data = memoryview(source.read(_CHUNK))
    left = data
    while left:
        left = left[target.write(left) :]
    return len(data)
