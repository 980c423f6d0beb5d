"""The part of a file that has come so far: kept beside its place in the cache until all of it is there and right."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from engine.printable import quoted
from models.errors import DownloadError

SUFFIX = ".octavo-part"
_BLOCK = 1 << 20
_STALE_S = 30 * 24 * 3600
"""A download that nobody has continued for so long is not waited for."""
_SHA256_DIGITS, _SHA1_DIGITS = 64, 40


class Announced(NamedTuple):
    """What the hub says of a file. name: for messages. hash: hexadecimal; "" is none that we know how to check."""

    name: str
    n_bytes: int
    hash: str


class PartialDownload:
    """A file NAME.octavo-part, open to be continued. One process at a time: the caller holds a lock.

    Use as a context manager. However the block ends, what came stays for the next attempt, unless `finish` finds it to
    be wrong. `position` is where the next byte goes.
    """

    def __init__(self, path: Path, announced: Announced) -> None:
        self._path = path
        self._announced = announced
        self.position = 0
        self._digest = _digest(announced)

    def __enter__(self) -> Self:
        self._file = open(self._path, "r+b" if self._path.exists() else "x+b", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def resume(self, progress: Callable[[int], None]) -> None:
        """Read what an earlier attempt left, for the hash. progress: is told the position."""
        while self.position <= self._announced.n_bytes and (block := self._file.read(_BLOCK)):
            self._digest.update(block)
            self.position += len(block)
            progress(self.position)
        if self.position > self._announced.n_bytes:
            self.restart()

    def restart(self) -> None:
        """Forget what came."""
        self._file.seek(0)
        self._file.truncate()
        self.position = 0
        self._digest = _digest(self._announced)

    def write(self, block: bytes) -> None:
        """Continue with these bytes. Raises DownloadError if the disk is full, or more comes than was announced."""
        if self.position + len(block) > self._announced.n_bytes:
            self._discard("longer than")
        rest = memoryview(block)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            reason = "is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else f"refuses ({error.strerror})"
            raise DownloadError(
                f"The disk of {quoted(str(self._path.parent), 200)} {reason} while {quoted(self._announced.name)} is "
                "downloaded: make room and run this again, which resumes, or set HF_HOME to a folder on another disk."
            ) from None
        self._digest.update(block)
        self.position += len(block)

    def finish(self, target: Path) -> None:
        """Give the file its name, on the disk for good. Raises DownloadError if it is not what was announced."""
        if self.position != self._announced.n_bytes:
            self._discard("not as long as")
        if self._announced.hash and self._digest.hexdigest() != self._announced.hash:
            self._discard("not the same as")
        os.fsync(self._file.fileno())
        self._file.close()  # Windows does not rename open files
        os.replace(self._path, target)

    def _discard(self, differs: str) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)
        raise DownloadError(
            f"What came as {quoted(self._announced.name)} is {differs} what the hub announced, and was deleted: run "
            "this again."
        )


def n_bytes_so_far(folder: Path, etag: str) -> int:
    """What has come of a file before."""
    try:
        return path_of(folder, etag).stat().st_size
    except OSError:
        return 0


def path_of(folder: Path, etag: str) -> Path:
    """Where the part of the file that the hub knows by `etag` is: another content never continues it."""
    return folder / (etag + SUFFIX)


def remove_stale(folder: Path) -> None:
    """Delete the parts that nobody has continued for a month; any other may be wanted yet."""
    for path in folder.glob("*" + SUFFIX):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _STALE_S:
                path.unlink()


def _digest(announced: Announced) -> hashlib._Hash:
    """The hub names large files by SHA-256, and small ones as git does: the SHA-1 of a header and the content."""
    if len(announced.hash) == _SHA1_DIGITS:
        return hashlib.sha1(f"blob {announced.n_bytes}\0".encode(), usedforsecurity=False)
    return hashlib.sha256()


def checkable(etag: str) -> str:
    """The hash in an ETag, "" if it is something else, as some mirrors send."""
    is_hash = len(etag) in (_SHA256_DIGITS, _SHA1_DIGITS) and all(digit in "0123456789abcdef" for digit in etag)
    return etag if is_hash else ""
