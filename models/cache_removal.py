"""Single files removed from huggingface_hub's cache, through its own functions.

The cache's layout is documented at https://huggingface.co/docs/huggingface_hub/guides/manage-cache: a file of a
revision is a link to a blob, which other revisions may link to as well.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import CachedRepoInfo, DeleteCacheStrategy, HFCacheInfo, scan_cache_dir

from engine.printable import one_line
from models.errors import CatalogueError


class CacheRemoval(NamedTuple):
    """What will be removed. files: the links, and the blobs that nothing else links to. rest: what then is empty."""

    files: DeleteCacheStrategy
    rest: DeleteCacheStrategy | None

    @property
    def freed(self) -> int:
        """Bytes on disk."""
        return self.files.expected_freed_size

    def execute(self) -> None:
        """Remove blobs before the links to them, so that after a kill the links still tell what is to be removed.

        Raises OSError.
        """
        # A link in the place of a blob is huggingface_hub's way to share blobs between repositories: that is its own.
        blobs = [blob for blob in self.files.blobs if not blob.is_symlink()]
        for blob in blobs:
            blob.unlink(missing_ok=True)
        dataclasses.replace(self.files, blobs=self.files.blobs.difference(blobs)).execute()
        if self.rest:
            self.rest.execute()


def in_cache(file: Path) -> bool:
    """Whether the path of a file is one of huggingface_hub's cache."""
    return _repository(file) is not None


def plan_cache_removal(files: Sequence[Path]) -> CacheRemoval:
    """What removing these files of one repository means; those that are gone are left out.

    Links to blobs that an earlier removal took away, before it was killed, are removed at once: huggingface_hub
    refuses a repository with such a link. Raises CatalogueError where it refuses the repository for another reason.
    """
    for file in files:
        if file.is_symlink() and not file.exists():
            file.unlink()
    repository = _repository(files[0])
    assert repository is not None
    cache = scan_cache_dir(repository.parent)
    real = [Path(os.path.realpath(file.parent)) / file.name for file in files if file.exists()]
    found = next((repo for repo in cache.repos if repo.repo_path == Path(os.path.realpath(repository))), None)
    cached = {file.file_path: file for revision in found.revisions for file in revision.files} if found else {}
    if not cached.keys() >= set(real):
        reasons = [str(warning) for warning in cache.warnings if repository.name in str(warning)]
        raise CatalogueError(
            f"huggingface_hub finds its cache damaged in '{one_line(str(repository))}' "
            f"({one_line(' '.join(reasons))}): delete this folder."
        )
    strategy = cache.delete_files(*(cached[path] for path in real))
    return CacheRemoval(strategy, _rest(cache, found, strategy) if found else None)


def _rest(cache: HFCacheInfo, repo: CachedRepoInfo, removed: DeleteCacheStrategy) -> DeleteCacheStrategy | None:
    """The folder of a repository that has nothing left, not even the beginning of a download."""
    files = {file.file_path for revision in repo.revisions for file in revision.files}
    folder = repo.repo_path / "blobs"
    blobs = set(folder.iterdir()) if folder.is_dir() else set()
    if files - removed.files or blobs - removed.blobs:
        return None
    return cache.delete_revisions(*(revision.commit_hash for revision in repo.revisions))


def _repository(file: Path) -> Path | None:
    """The folder of a repository in the cache that `file` is a snapshot's file of."""
    return next((folder.parent for folder in file.parents if folder.name == "snapshots"), None)
