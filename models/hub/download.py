"""Files of a repository on the hub, downloaded into huggingface_hub's own cache so that a killed download resumes.

hf_hub_download writes to a file with a new name each time and deletes it on failure, and hf_xet keeps no chunks by
default: with either, a pull that is killed at 39 of 40 GB begins anew. So the bytes are fetched here, into a partial
file beside their place in the cache, by HTTP from any position on, or by xet: hf_xet's streams begin at any position
too and are checked chunk by chunk, and one that fails is continued over HTTP. Size and hash are checked before the file
takes its name in blobs/. The rest of the cache's layout is left to hf_hub_download, which finds the content there and
links to it. The layout is described at https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import httpx2
from filelock import Timeout
from huggingface_hub import (
    HfApi,
    HfFileMetadata,
    constants,
    get_hf_file_metadata,
    hf_hub_download,
    hf_hub_url,
)
from huggingface_hub.errors import FileMetadataError, RevisionResolutionError
from huggingface_hub.file_download import are_symlinks_supported, repo_folder_name
from huggingface_hub.utils import WeakFileLock

from engine.printable import quoted
from engine.units import format_bytes
from models.disk import free_bytes
from models.errors import DownloadError
from models.hub.cache import cached_path
from models.hub.explained import explained
from models.hub.partial_download import Announced, PartialDownload, checkable, n_bytes_so_far, path_of, remove_stale
from models.hub.patience import Patience
from models.hub.remote_blocks import Block, XetError, http_blocks, uses_xet, xet_blocks
from models.hub.remote_file import RemoteFile

_GLANCE_S = 0.5
"""Between two looks at a file that another process is downloading."""
_REPORT_S = 0.05
"""Between two reports of progress: blocks are small, and drawing takes longer than writing them."""
_SAFE_ETAG = re.compile(r"\w[\w.-]*")


def download(
    repository: str, revision: str | None, files: Sequence[RemoteFile], progress: Callable[[int, int], None]
) -> tuple[Path, ...]:
    """Bring `files` into the cache; returns where they are in it, in the same order.

    repository: "user/name". revision: a branch or tag, which the cache then knows for other programs too, or a commit;
    None is the main branch.
    progress: is told the bytes that are there and the bytes of all files. Of files in the cache nothing is downloaded.
    Interrupted in whatever way, the next call resumes. Raises HubError, and DownloadError for a full disk or a file
    that is not what the hub announced.
    """
    with explained(repository):
        return _Download(repository, revision).run(files, progress)


class _Download:
    """One call of `download`: a repository at one commit."""

    def __init__(self, repository: str, revision: str | None) -> None:
        self._repository = repository
        self._commit = self._resolved(revision)
        folder = repo_folder_name(repo_id=repository, repo_type="model")
        self._folder = Path(constants.HF_HUB_CACHE, folder)
        self._blobs = self._folder / "blobs"
        self._locks = Path(constants.HF_HUB_CACHE, ".locks", folder)

    def run(self, files: Sequence[RemoteFile], progress: Callable[[int, int], None]) -> tuple[Path, ...]:
        total = sum(file.n_bytes for file in files)
        self._check_disk(files)
        paths, before = [], 0
        for file in files:
            progress(before, total)

            def show(position: int, before: int = before) -> None:
                progress(before + position, total)

            paths.append(self._cached(file) or self._fetch(file, show))
            before += file.n_bytes
        progress(total, total)
        remove_stale(self._blobs)
        return tuple(paths)

    def _resolved(self, revision: str | None) -> str:
        """The commit that a branch or tag stands for now; in offline mode, the one in the cache."""
        patience = Patience()
        while True:
            try:
                return HfApi().resolve_revision(self._repository, revision=revision).resolved
            except RevisionResolutionError as error:
                patience.wait(error.__cause__ if isinstance(error.__cause__, Exception) else error)
            except httpx2.HTTPError as error:
                patience.wait(error)

    def _cached(self, file: RemoteFile) -> Path | None:
        return cached_path(self._repository, self._commit, file)

    def _check_disk(self, files: Sequence[RemoteFile]) -> None:
        missing = [file for file in files if not self._cached(file)]
        needed = sum(file.n_bytes - n_bytes_so_far(self._blobs, file.sha256 or "") for file in missing)
        free = free_bytes(self._blobs)
        if needed > free:
            raise DownloadError(
                f"{quoted(self._repository)} needs {format_bytes(needed)} more on the disk of "
                f"{quoted(constants.HF_HUB_CACHE, 200)}, where {format_bytes(free)} are free: make room, or set "
                "HF_HOME to a folder on another disk."
            )

    def _fetch(self, file: RemoteFile, progress: Callable[[int], None]) -> Path:
        metadata = self._metadata(file)
        etag = metadata.etag or ""
        target = self._target(file, etag)
        for folder in (self._blobs, target.parent, self._locks):
            folder.mkdir(parents=True, exist_ok=True)

        def watch() -> None:
            progress(min(n_bytes_so_far(self._blobs, etag), file.n_bytes))

        with _locked(self._locks / f"{etag}.lock", watch):
            if not (target.is_file() and target.stat().st_size == file.n_bytes):
                announced = Announced(file.name, file.n_bytes, file.sha256 or checkable(etag))
                with PartialDownload(path_of(self._blobs, etag), announced) as part:
                    part.resume(progress)
                    self._fill(part, file, metadata, progress)
                    part.finish(target)
        return Path(hf_hub_download(self._repository, file.name, revision=self._commit))

    def _target(self, file: RemoteFile, etag: str) -> Path:
        """Where the content goes: into blobs/, or straight to its name where the system has no symbolic links."""
        if are_symlinks_supported(constants.HF_HUB_CACHE):
            return self._blobs / etag
        return self._folder / "snapshots" / self._commit / file.name

    def _metadata(self, file: RemoteFile) -> HfFileMetadata:
        url = hf_hub_url(self._repository, file.name, revision=self._commit, endpoint=constants.ENDPOINT)
        patience = Patience()
        while True:
            try:
                metadata = get_hf_file_metadata(url)
                break
            except httpx2.HTTPError as error:
                patience.wait(error)
        if metadata.commit_hash is None or metadata.etag is None or not _SAFE_ETAG.fullmatch(metadata.etag):
            raise FileMetadataError("The answer lacks what the hub's answers have.")
        differs = metadata.size not in (None, file.n_bytes)
        if differs or (file.sha256 and checkable(metadata.etag) not in ("", file.sha256)):
            raise DownloadError(f"{quoted(file.name)} has changed on the hub just now: run this again.")
        return metadata

    def _fill(
        self, part: PartialDownload, file: RemoteFile, metadata: HfFileMetadata, progress: Callable[[int], None]
    ) -> None:
        """Download what is missing, in as many attempts as it takes while something comes."""
        patience = Patience()
        by_xet = uses_xet(metadata)
        while part.position < file.n_bytes:
            start = part.position
            blocks = xet_blocks(metadata, start) if by_xet else http_blocks(metadata, start)
            try:
                self._append(part, blocks, progress)
                if part.position < file.n_bytes:
                    raise httpx2.RemoteProtocolError("The answer ended early.")
            except XetError:
                by_xet = False
            except httpx2.HTTPError as error:
                by_xet = False
                if part.position > start:
                    patience.renew()
                patience.wait(error)
                metadata = self._metadata(file)  # whose address is signed for a limited time

    @staticmethod
    def _append(part: PartialDownload, blocks: Generator[Block], progress: Callable[[int], None]) -> None:
        due = 0.0
        with contextlib.closing(blocks):
            for block in blocks:
                if block.position != part.position:
                    part.restart()
                part.write(block.content)
                if time.monotonic() >= due:
                    progress(part.position)
                    due = time.monotonic() + _REPORT_S


@contextlib.contextmanager
def _locked(path: Path, watch: Callable[[], None]) -> Iterator[None]:
    """The lock that huggingface_hub takes too; `watch` is called now and then while another process has it."""
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(WeakFileLock(path, timeout=_GLANCE_S))
                break
            except Timeout:
                watch()
        yield
