"""What huggingface_hub's cache already holds, so that nothing is fetched twice, and offline mode has something to use.

The cache's layout is documented at https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Nothing is
written here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError, LocalEntryNotFoundError

from models.disk import free_bytes
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile


class CachedFiles(NamedTuple):
    """The files of one commit that are in the cache."""

    commit: str
    files: tuple[RemoteFile, ...]


def cached_files(reference: HubReference) -> CachedFiles | None:
    """What the cache has of the revision that `reference` names; None if it has nothing."""
    try:
        folder = Path(snapshot_download(reference.repository, revision=reference.revision, local_files_only=True))
    except IncompleteSnapshotError as error:
        folder = Path(error.snapshot_path)
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = tuple(RemoteFile(path.relative_to(folder).as_posix(), path.stat().st_size, _blob(path)) for path in paths)
    return CachedFiles(folder.name, files) if files else None


def cached_paths(repository: str, commit: str, files: Sequence[RemoteFile]) -> tuple[Path, ...] | None:
    """Where the cache has these files, all of them and of the right size; None otherwise."""
    paths = []
    for file in files:
        path = cached_path(repository, commit, file)
        if path is None:
            return None
        paths.append(path)
    return tuple(paths)


def cached_path(repository: str, commit: str, file: RemoteFile) -> Path | None:
    """Where the cache has this file in its right size; None if it does not."""
    path = try_to_load_from_cache(repository, file.name, revision=commit)
    return Path(path) if isinstance(path, str) and os.path.getsize(path) == file.n_bytes else None


def is_copy_of(path: Path, file: RemoteFile, commit: str) -> bool:
    """Whether a path in the cache, perhaps of an earlier commit, has the content that `file` has at `commit`."""
    if not path.is_file() or path.stat().st_size != file.n_bytes:
        return False
    blob = _blob(path)
    return blob == file.sha256 if blob and file.sha256 else commit in path.parts


def is_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids every request."""
    return constants.is_offline_mode()


def free_disk() -> int:
    """Bytes that are free on the cache's disk. Raises OSError."""
    return free_bytes(Path(constants.HF_HUB_CACHE))


def _blob(path: Path) -> str | None:
    """Hash of the content: the name of the file that a link in the cache points at; None without links."""
    name = os.path.basename(os.readlink(path)) if path.is_symlink() else ""
    return name if len(name) == 64 else None
