"""A file on the hub, before it is here."""

from __future__ import annotations

from typing import NamedTuple


class RemoteFile(NamedTuple):
    """A file of a repository. name: with its folders. sha256: None where the hub announces none, as for small files."""

    name: str
    n_bytes: int
    sha256: str | None
