"""What the stand-in for the hub holds: repositories, their commits and files, and what the API says of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

_BLOCK = 1 << 16
_DEFAULT_FIELDS = (
    *("id", "modelId", "sha", "lastModified", "createdAt", "private", "gated", "downloads", "likes", "tags"),
    *("gguf", "library_name", "pipeline_tag"),
)


@dataclass(frozen=True)
class HubFile:
    """One file of one commit: bytes, or a file on disk, which is read anew for every request."""

    content: bytes | Path
    lfs: bool
    sha256: str
    git_sha1: str

    @classmethod
    def of(cls, content: bytes | Path, lfs: bool) -> HubFile:
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        sha256, sha1 = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode())
        for block in _blocks(content):
            sha256.update(block)
            sha1.update(block)
        return cls(content, lfs, sha256.hexdigest(), sha1.hexdigest())

    @property
    def size(self) -> int:
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.git_sha1

    def read(self, start: int, end: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[start:end]
        with self.content.open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@dataclass
class Repository:
    """A model repository: commits, and the branches and tags that point at them.

    record: what the API says of it beside its files. gated: False, "auto" or "manual"; `members` are the tokens let in.
    """

    name: str
    commits: dict[str, dict[str, HubFile]]
    refs: dict[str, str]
    record: dict[str, Any]
    gated: bool | str = False
    members: frozenset[str] = frozenset()
    private: bool = False
    xet: Mapping[str, str] = field(default_factory=dict)

    def files(self, revision: str) -> tuple[str, dict[str, HubFile]] | None:
        """(commit, its files by name) of a branch, a tag or a commit."""
        commit = self.refs.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else None


def record(repository: Repository, revision: str, query: Mapping[str, Sequence[str]], also: str) -> dict[str, Any]:
    """The answer of /api/models for one repository: the fields that `expand` names, or the usual ones and `also`."""
    at = repository.files(revision)
    assert at is not None
    commit, files = at
    siblings: list[dict[str, Any]] = [{"rfilename": path} for path in files]
    if query.get("blobs"):
        for sibling, file in zip(siblings, files.values(), strict=True):
            sibling |= {"size": file.size, "blobId": file.git_sha1}
            if file.lfs:
                sibling["lfs"] = {"sha256": file.sha256, "size": file.size, "pointerSize": 134}
    fields = query.get("expand") or (*_DEFAULT_FIELDS, also)
    whole = {
        "_id": hashlib.md5(repository.name.encode()).hexdigest()[:24],
        "id": repository.name,
        "modelId": repository.name,
        "author": repository.name.split("/", maxsplit=1)[0],
        "sha": commit,
        "private": repository.private,
        "gated": repository.gated,
        "disabled": False,
        "usedStorage": sum(file.size for file in files.values()),
        "siblings": siblings,
    } | repository.record
    return {name: value for name, value in whole.items() if name in ("_id", "id", *fields)}


def tree(repository: Repository, files: Mapping[str, HubFile], folder: str, deep: bool) -> Iterator[dict[str, Any]]:
    """The answer of /api/models/…/tree for `folder` ("" or ending in "/"); deep: with everything below it."""
    folders: set[str] = set()
    for path, file in files.items():
        if not path.startswith(folder):
            continue
        inner = path.removeprefix(folder).split("/")
        parents = {folder + "/".join(inner[:depth]) for depth in range(1, len(inner))}
        shown = parents if deep else {parent for parent in parents if "/" not in parent.removeprefix(folder)}
        for parent in sorted(shown - folders):
            folders.add(parent)
            yield {"type": "directory", "path": parent, "oid": hashlib.sha1(parent.encode()).hexdigest(), "size": 0}
        if deep or len(inner) == 1:
            yield entry(repository, path, file)


def entry(repository: Repository, path: str, file: HubFile) -> dict[str, Any]:
    """How the API lists a file."""
    answer: dict[str, Any] = {"type": "file", "path": path, "size": file.size, "oid": file.git_sha1}
    if file.lfs:
        answer["lfs"] = {"oid": file.sha256, "size": file.size, "pointerSize": 134}
    if path in repository.xet:
        answer["xetHash"] = repository.xet[path]
    return answer


def _blocks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        yield from _read_blocks(file)


def _read_blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        yield block
