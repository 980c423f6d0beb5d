"""What the hub says about repositories: found by words, and one with all its files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from huggingface_hub import (
    HfApi,
    ModelInfo,
    constants,
    get_hf_file_metadata,
    get_session,
    hf_hub_url,
    hf_raise_for_status,
)
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import build_hf_headers

from engine.errors import OctavoError
from models.download import RemoteFile
from models.hub_cache import cached_files, is_offline
from models.hub_errors import explained
from models.patience import Patience
from models.reference import HubReference
from models.variants import Variant, variants_of

_TIMEOUT_S = 15
"""For an answer of the hub's programming interface."""
_PARALLEL = 8
"""Requests at once."""
_FIELDS = ("downloads", "likes", "lastModified", "gguf", "gated")


_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RemoteRepository:
    """A repository at one commit.

    reference: what was asked for. commit: its full hash. parameters, context: of the model in it, as the hub read them
    in one of its files; None if it did not. is_gated: its files are only for those whom its owner lets in.
    """

    reference: HubReference
    commit: str
    files: tuple[RemoteFile, ...]
    parameters: int | None = None
    context: int | None = None
    is_gated: bool = False

    @property
    def name(self) -> str:
        """As "user/name"."""
        return self.reference.repository

    @property
    def revision(self) -> str:
        """The branch, tag or commit that was asked for."""
        return self.reference.revision or constants.DEFAULT_REVISION


@dataclass(frozen=True)
class FoundRepository:
    """A repository that a search has found. variants: empty where the hub did not tell its files."""

    name: str
    downloads: int
    likes: int
    updated: datetime | None
    parameters: int | None
    architecture: str | None
    is_gated: bool
    variants: tuple[Variant, ...]


def search(words: Sequence[str], limit: int) -> list[FoundRepository]:
    """The repositories with GGUF files whose names contain all `words`, most downloaded first. Raises HubError."""
    query = " ".join(words)
    with explained(query):
        infos = _search(query, limit)
    return _with_variants(infos)


def repository(reference: HubReference) -> RemoteRepository:
    """The repository with its files' sizes and hashes; in offline mode, as far as the hub's cache has it.

    Raises HubError.
    """
    if is_offline():
        cached = cached_files(reference)
        if cached:
            return RemoteRepository(reference, cached.commit, cached.files)
    with explained(str(reference)):
        info = _info(reference.repository, reference.revision)
    gguf = info.gguf or {}
    return RemoteRepository(
        reference._replace(repository=info.id),  # the hub's own spelling of the name
        info.sha or "",
        _files(info),
        _positive(gguf.get("total")),
        _positive(gguf.get("context_length")),
        bool(info.gated),
    )


def check_access(remote: RemoteRepository) -> None:
    """Raises HubError where the user is not let in to a gated repository: its listing is public, its files are not."""
    if remote.is_gated and remote.files:
        address = hf_hub_url(remote.name, remote.files[0].name, revision=remote.commit, endpoint=constants.ENDPOINT)
        with explained(remote.name):
            get_hf_file_metadata(address, timeout=_TIMEOUT_S)


def _search(query: str, limit: int) -> list[ModelInfo]:
    """What HfApi.list_models asks, but without its five attempts over 23 seconds where there is no network."""
    query_fields: dict[str, Any] = {"search": query, "filter": "gguf", "sort": "downloads", "limit": limit}
    query_fields["expand"] = _FIELDS
    address = f"{constants.ENDPOINT}/api/models"

    def ask() -> list[ModelInfo]:
        response = get_session().get(address, params=query_fields, headers=build_hf_headers(), timeout=_TIMEOUT_S)
        hf_raise_for_status(response)
        return [ModelInfo(**item) for item in response.json()[:limit]]  # type: ignore[no-untyped-call]

    return _patiently(ask)


def _info(name: str, revision: str | None = None) -> ModelInfo:
    return _patiently(lambda: HfApi().model_info(name, revision=revision, files_metadata=True, timeout=_TIMEOUT_S))


def _patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Ask again what the hub refuses for a while; a network that is not there is told at once."""
    patience = Patience()
    while True:
        try:
            return ask()
        except HfHubHTTPError as error:
            patience.wait(error)


def _with_variants(infos: Sequence[ModelInfo]) -> list[FoundRepository]:
    """A listing has no sizes of files: one more request for each repository, several at once.

    The threads are daemons, so that Ctrl-C need not wait for an answer.
    """
    variants: dict[int, tuple[Variant, ...]] = {}
    waiting: SimpleQueue[int] = SimpleQueue()
    for index in range(len(infos)):
        waiting.put(index)

    def work() -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except Empty:
                return
            try:
                with explained(infos[index].id):
                    variants[index] = tuple(variants_of(_files(_info(infos[index].id))))
            except OctavoError:
                variants[index] = ()  # the search is worth showing without it

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_PARALLEL, len(infos)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [_found(info, variants.get(index, ())) for index, info in enumerate(infos)]


def _found(info: ModelInfo, variants: tuple[Variant, ...]) -> FoundRepository:
    gguf = info.gguf or {}
    architecture = gguf.get("architecture")
    return FoundRepository(
        info.id,
        info.downloads or 0,
        info.likes or 0,
        info.last_modified,
        _positive(gguf.get("total")),
        architecture if isinstance(architecture, str) else None,
        bool(info.gated),
        variants,
    )


def _files(info: ModelInfo) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    )


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
