"""What the hub says about a repository: its files with their sizes and hashes, and whether they may be had."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any, TypeVar

from huggingface_hub import HfApi, ModelInfo, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from models.hub.cache import cached_files, is_offline
from models.hub.explained import StrangeAnswer, explained
from models.hub.patience import Patience
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile

TIMEOUT_S = 15
"""For an answer of the hub's programming interface."""

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


def repository(reference: HubReference) -> RemoteRepository:
    """The repository with its files' sizes and hashes; in offline mode, as far as the hub's cache has it.

    Raises HubError.
    """
    if is_offline():
        cached = cached_files(reference)
        if cached:
            return RemoteRepository(reference, cached.commit, cached.files)
    with explained(str(reference)):
        return patiently(lambda: _remote(reference, model_info(reference.repository, reference.revision)))


def check_access(remote: RemoteRepository) -> None:
    """Raises HubError where the user is not let in to a gated repository: its listing is public, its files are not."""
    if remote.is_gated and remote.files:
        address = hf_hub_url(remote.name, remote.files[0].name, revision=remote.commit, endpoint=constants.ENDPOINT)
        with explained(remote.name):
            get_hf_file_metadata(address, timeout=TIMEOUT_S)


def patiently(ask: Callable[[], _Answer]) -> _Answer:
    """Ask again what the hub refuses for a while; a network that is not there is told at once.

    ask: asks, and takes the answer apart. Raises StrangeAnswer where it cannot, and what `ask` raises otherwise.
    """
    patience = Patience()
    while True:
        try:
            return ask()
        except HfHubHTTPError as error:
            patience.wait(error)
        except HFValidationError:  # a ValueError, but not about the answer
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StrangeAnswer from error


def model_info(name: str, revision: str | None = None) -> ModelInfo:
    """What the hub's programming interface says. Raises what huggingface_hub does."""
    return HfApi().model_info(name, revision=revision, files_metadata=True, timeout=TIMEOUT_S)


def files_of(info: ModelInfo) -> tuple[RemoteFile, ...]:
    """The files of a repository, but for names that would lead out of its folder in the cache.

    Raises ValueError, TypeError or AttributeError if the answer is not of the hub's form.
    """
    files = (
        RemoteFile(file.rfilename, positive(file.size) or 0, file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    )
    return tuple(file for file in files if _stays_inside(file.name))


def positive(value: Any) -> int | None:
    """A number that the hub tells; None for anything else."""
    return value if isinstance(value, int) and value > 0 else None


def _remote(reference: HubReference, info: ModelInfo) -> RemoteRepository:
    gguf = info.gguf or {}
    if not info.sha:
        raise ValueError("no commit")
    return RemoteRepository(
        reference._replace(repository=info.id),  # the hub's own spelling of the name
        info.sha,
        files_of(info),
        positive(gguf.get("total")),
        positive(gguf.get("context_length")),
        bool(info.gated),
    )


def _stays_inside(name: str) -> bool:
    """Whether a path is below the folder in which it begins, on every system."""
    parts = re.split(r"[/\\]", name)
    return ".." not in parts and not any(PureWindowsPath(part).anchor for part in (name, *parts))
