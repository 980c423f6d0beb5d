"""A model that is downloaded while the app goes on, and can be stopped at any moment; the next try goes on there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.chat.answering.engine_host import Post
from engine.errors import OctavoError
from engine.gguf_file import GgufFile
from models.catalogue import Catalogue, InstalledModel

if TYPE_CHECKING:
    from models.hub.repository import RemoteRepository
    from models.hub.variants import Variant


@dataclass(frozen=True)
class Downloading:
    """So many bytes of all are there."""

    done: int
    total: int


DownloadEvent = Downloading | InstalledModel | OctavoError
"""Any number of Downloading, then the model, or why there is none."""


class _Stopped(Exception):
    """Nobody wants the model any more."""


class ModelDownload:
    """One download. All methods and `on_event` belong to the thread that `post` hands over to."""

    def __init__(self, reference: str, post: Post, on_event: Callable[[DownloadEvent], None]) -> None:
        """Starts at once. reference: what `octavo pull` takes, with a quantization."""
        self._reference = reference
        self._post = post
        self._on_event = on_event
        self._is_stopped = False
        threading.Thread(target=self._run, name="model-download", daemon=True).start()

    def stop(self) -> None:
        """Want it no more: no event comes after this. What has been downloaded is kept."""
        self._is_stopped = True

    def _run(self) -> None:
        try:
            self._tell(self._fetch())
        except _Stopped:
            pass
        except OctavoError as error:
            self._tell(error)
        except OSError as error:
            self._tell(OctavoError(f"The model cannot be downloaded: {error.strerror or error}."))

    def _tell(self, event: DownloadEvent) -> None:
        def deliver() -> None:
            if not self._is_stopped:
                self._on_event(event)

        self._post(deliver)

    def _fetch(self) -> InstalledModel:
        """On the thread of the download. Raises HubError, DownloadError, ModelFileError or CatalogueError."""
        from models.hub.cache import cached_paths  # noqa: PLC0415
        from models.hub.download import download  # noqa: PLC0415 - huggingface_hub would delay every start
        from models.hub.pulled import install  # noqa: PLC0415
        from models.hub.reference import parse_reference  # noqa: PLC0415
        from models.hub.repository import check_access, repository  # noqa: PLC0415

        remote = repository(parse_reference(self._reference))
        variant = _variant(remote)
        paths = cached_paths(remote.name, remote.commit, variant.files)
        if paths is None:
            check_access(remote)
            paths = download(remote.name, remote.reference.revision, variant.files, self._progress)
        GgufFile.open(paths[0])
        if self._is_stopped:
            raise _Stopped
        return install(Catalogue(), remote, variant, paths)

    def _progress(self, done: int, total: int) -> None:
        if self._is_stopped:
            raise _Stopped
        self._tell(Downloading(done, total))


def _variant(remote: RemoteRepository) -> Variant:
    """The one that the reference names. Raises HubError."""
    from models.errors import HubError  # noqa: PLC0415
    from models.hub.variants import matching, variants_of  # noqa: PLC0415

    found = matching(variants_of(remote.files), remote.reference.variant or "")
    if not found:
        raise HubError(f"{remote.name} has no {remote.reference.variant} any more: 'octavo search' finds others.")
    return found[0]
