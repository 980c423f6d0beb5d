"""Models that Ollama holds: manifests by name, which tell the files, called blobs, by hash.

The layout is that of manifest/manifest.go and manifest/paths.go in https://github.com/ollama/ollama.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from models.elsewhere.holdings import Holding, entries, files_under
from models.names import name_in_repository

_OF_SERVICE = tuple(
    map(Path, ("/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models", "/var/lib/ollama"))
)
_MANIFESTS = ("manifests-v2", "manifests")
"""Folders of STORE/manifests/HOST/NAMESPACE/MODEL/TAG; newer versions write to the first."""
_HOSTS = ("registry.ollama.ai", "ollama.com")
"""Two names of the registry that is meant when none is said."""
_LIST = "application/vnd.ollama.manifest.list.v2+json"
_WEIGHTS = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading raises if it is no JSON, or not of the form that is expected."""
_LONGEST_MANIFEST = 2**20
"""Bytes; real ones have about a thousand."""


def ollama_stores() -> list[Path]:
    """Folders of the models of this user's Ollama, and of one that runs as a service of the system."""
    moved = os.environ.get("OLLAMA_MODELS", "").strip("\"' ")
    return [Path(os.path.abspath(moved))] if moved else [Path.home() / ".ollama" / "models", *_OF_SERVICE]


def held_by_ollama(store: Path, unreadable: list[Path]) -> Iterator[Holding]:
    """Models in GGUF with a manifest in `store`. unreadable: gets the manifests that are damaged or lack their blob."""
    seen: set[_Name] = set()
    inside = [entry.name for entry in entries(store, unreadable)]
    for folder in (name for name in _MANIFESTS if name in inside):
        for manifest in files_under(store / folder, unreadable):
            parts = manifest.relative_to(store / folder).parts
            if len(parts) != 4:
                continue
            host, *others = parts
            name = _Name("" if host in _HOSTS else host, *others)
            if name in seen:
                continue
            seen.add(name)
            try:
                blob = _weights(store, _read(manifest))
                if blob:
                    os.stat(blob)
                    yield Holding("Ollama", str(name), blob, name.here)
            except (OSError, *_DAMAGE):
                unreadable.append(manifest)


class _Name(NamedTuple):
    """host: empty for Ollama's own."""

    host: str
    namespace: str
    model: str
    tag: str

    def __str__(self) -> str:
        """As `ollama list` shows it."""
        model = f"{self.model}:{self.tag}"
        if self.host:
            return f"{self.host}/{self.namespace}/{model}"
        return model if self.namespace == "library" else f"{self.namespace}/{model}"

    @property
    def here(self) -> str:
        return name_in_repository(self.model, "" if self.tag == "latest" else self.tag)


def _weights(store: Path, manifest: Any) -> Path | None:
    """The blob with the weights; None if they are not here, or in another format.

    A list has a manifest for each of Ollama's engines, or the digest of one. Raises OSError and _DAMAGE.
    """
    if manifest.get("mediaType") == _LIST:
        children = [
            child if "layers" in child else _read(_blob(store, child["digest"])) for child in manifest["manifests"]
        ]
    else:
        children = [manifest]
    layers = [layer for child in children for layer in child.get("layers") or ()]
    return next((_blob(store, layer["digest"]) for layer in layers if layer["mediaType"] == _WEIGHTS), None)


def _blob(store: Path, digest: str) -> Path:
    match = _DIGEST.fullmatch(digest)
    if not match:
        raise ValueError(digest)
    return store / "blobs" / f"sha256-{match[1]}"


def _read(file: Path) -> Any:
    with file.open("rb") as stream:
        return json.loads(stream.read(_LONGEST_MANIFEST))
