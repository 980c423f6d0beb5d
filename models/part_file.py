"""A file that is seen under its name only when it is whole."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.printable import one_line
from models.errors import CopyError

if sys.platform != "win32":
    import fcntl


_ABANDONED_S = 24 * 3600
"""Age of a file that nobody comes back to. A browser that downloads into our folder, without a lock, is younger."""


class PartFile:
    """NAME.part while `target`, NAME, is written. Use as a context manager; `finish` gives it its name.

    Whatever ends the block before that removes it, and an error after that removes `target` too, so that the files of
    a split model appear together or not at all. A killed command leaves NAME.part, which the next one overwrites. Two
    commands cannot write the same one: it is locked while it is open.
    """

    stream: FileIO
    """To be written; unbuffered."""

    def __init__(self, target: Path, *, replaces: bool = False, stage: str = "") -> None:
        """replaces: take the place of a file that has the name already, where `finish` would refuse.

        stage: put before .part, where one target has several parts at a time.
        """
        self.target = target
        self._replaces = replaces
        self.part = target.with_name(target.name + stage + ".part")
        self._finished = False

    def __enter__(self) -> Self:
        """Raises CopyError if another command is writing the same file, and OSError."""
        try:
            self.stream = _locked(self.part)
        except BlockingIOError:
            raise CopyError(
                f"Another command is writing '{one_line(str(self.target))}': wait for it, or give another name."
            ) from None
        return self

    def finish(self) -> None:
        """Let the target appear, on the disk for good. Raises CopyError if there is such a file by now, and OSError."""
        os.fsync(self.stream.fileno())
        if not self._replaces:
            self._take_name()
        self._finished = True
        if sys.platform == "win32":
            self.stream.close()  # an open file cannot be renamed there
        os.replace(self.part, self.target)

    def _take_name(self) -> None:
        """A rename would overwrite a file that another command has written meanwhile."""
        try:
            os.close(os.open(self.target, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            raise CopyError(f"There is already a file '{one_line(str(self.target))}': give another name.") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.platform == "win32":
            self.stream.close()  # an open file cannot be removed there
        with contextlib.suppress(OSError):  # it would hide what went wrong
            if self._finished and kind is not None and not self._replaces:
                self.target.unlink(missing_ok=True)
            if not self._finished or kind is not None:
                self.part.unlink(missing_ok=True)
        self.stream.close()


def remove_abandoned(folder: Path) -> None:
    """Remove what killed commands have left in `folder`: .part files that are old, and that nobody has locked."""
    for path in folder.glob("*.part"):
        with contextlib.suppress(OSError):  # somebody is writing it, or it is not ours to remove
            if time.time() - path.lstat().st_mtime > _ABANDONED_S:
                _remove_unlocked(path)


def _remove_unlocked(path: Path) -> None:
    if sys.platform == "win32":
        path.unlink()  # refused while another process has it open
    else:
        with _locked(path):
            path.unlink()


def _locked(path: Path) -> FileIO:
    """The file, empty, and locked until it is closed. Raises BlockingIOError if another process has it."""
    if sys.platform == "win32":
        try:
            path.unlink(missing_ok=True)  # refused while another process has it open
        except PermissionError:
            raise BlockingIOError from None
        return path.open("xb", buffering=0)
    while True:
        stream = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb", buffering=0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, stream):
                stream.truncate(0)
                return stream
        except BaseException:
            stream.close()
            raise
        stream.close()


def _is_still(path: Path, stream: FileIO) -> bool:
    """Whether the open file has that path, and was not renamed or removed by the process that had it locked."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
