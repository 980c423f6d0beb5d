"""Models that the user has as files: checked, then entered in the catalogue where they are, or copied."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from engine.gguf_file import GgufFile
from engine.printable import one_line, quoted
from models.catalogue import Catalogue, InstalledModel, Origin
from models.copying import copy_model
from models.errors import CatalogueError, NotALanguageModel
from models.names import free_name, safe_name
from models.shards import shards_of, without_shard_number

_IN_MODELS_FOLDER = (Origin.COPIED, Origin.MADE, Origin.FOUND)

_OTHER_TYPES = {
    "adapter": "an adapter, which only changes another model",
    "mmproj": "a projector, which reads images for another model",
    "imatrix": "an importance matrix, which helps to quantize another model",
}
"""Values of general.type; see GGUFType in gguf-py/gguf/constants.py. A model may leave it out."""
_OTHER_ARCHITECTURES = {
    "clip": _OTHER_TYPES["mmproj"],
    "imatrix": _OTHER_TYPES["imatrix"],
    "controlvector": "a control vector, which only changes another model",
}
"""Values of general.architecture in files that older versions of llama.cpp's tools wrote without general.type."""


class Candidate(NamedTuple):
    """A model that can be installed.

    files: absolute paths of the shards in order, links not resolved. name: which it would get if it is free. origin:
    LINKED, or PULLED for files in the hub's cache. source: as InstalledModel has it.
    """

    files: tuple[Path, ...]
    name: str
    origin: Origin
    source: str

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return _size(self.files)


class Outcome(NamedTuple):
    """What `install` did. was_there: the model was installed already, and nothing changed."""

    model: InstalledModel
    was_there: bool


def candidate_of(path: Path) -> Candidate:
    """The model that the file at `path` is, or is a shard of.

    Raises ModelFileError if the file or another shard is missing or damaged, and NotALanguageModel.
    """
    files = check_language_model(path)
    name = safe_name(without_shard_number(files[0].name))
    return Candidate(files, name, Origin.LINKED, one_line(str(files[0])))


def check_language_model(path: Path) -> tuple[Path, ...]:
    """Absolute paths of all files of the model, links not resolved. Raises what `candidate_of` raises."""
    path = Path(os.path.abspath(path))
    first = shards_of(path)[0]
    gguf = GgufFile.open(first if os.path.isfile(first) else path)
    other = _what_else(gguf)
    if other:
        raise NotALanguageModel(f"'{one_line(str(path))}' is {other}: give the file of a language model.")
    return gguf.paths


def _what_else(gguf: GgufFile) -> str | None:
    """What the file is instead of a model that writes text, for a sentence."""
    kind = gguf.metadata.get("general.type")
    if isinstance(kind, str) and kind in _OTHER_TYPES:
        return _OTHER_TYPES[kind]
    if gguf.architecture in _OTHER_ARCHITECTURES:
        return _OTHER_ARCHITECTURES[gguf.architecture]
    if not gguf.tensors:
        return "only a vocabulary, without weights"
    if "token_embd.weight" not in gguf.tensors:
        return "no language model (it has no token embeddings)"
    if gguf.metadata.get(f"{gguf.architecture}.attention.causal") is False:
        return "an embedding or diffusion model, which Octavo cannot run"
    return None


def installed_model(files: tuple[Path, ...], models: Iterable[InstalledModel]) -> InstalledModel | None:
    """The one of `models` that is the same file as the first of `files`, by whatever path, or a copy of it."""
    source = one_line(str(files[0]))
    for model in models:
        if _is_same(files[0], model.path):
            return model
        if model.origin is Origin.COPIED and model.source == source and model.n_bytes == _size(files):
            return model
    return None


def install(
    candidate: Candidate,
    catalogue: Catalogue,
    name: str | None = None,
    copy: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Enter a model in the catalogue; if it is there already, only say so.

    name: what the user wants it to be called; None is the candidate's, with a number if that is taken. copy: copies
    the files into the models folder, also those of a model that is only linked so far, and is called with the bytes
    done and the bytes in total. Raises CatalogueError if `name` is taken or the catalogue cannot be written, CopyError,
    and what `copy` raises.
    """
    models = catalogue.models()
    present = installed_model(candidate.files, models)
    if present and (copy is None or present.origin in (*_IN_MODELS_FOLDER, Origin.STARTER)):
        return Outcome(present, was_there=True)
    others = {model.name.lower(): model for model in models if model != present}
    other = others.get(name.lower()) if name else None
    if other:
        raise CatalogueError(
            f"{quoted(other.name)} is already the name of another model, '{one_line(str(other.path))}': choose another."
        )
    name = name or (present.name if present else free_name(candidate.name, others))
    if copy is None:
        return Outcome(catalogue.add(name, candidate.files, candidate.origin, candidate.source), was_there=False)
    files = copy_model(candidate.files, name, copy)
    if present:
        catalogue.remove(present.name)
    return Outcome(catalogue.add(name, files, Origin.COPIED, candidate.source), was_there=False)


def _size(files: Iterable[Path]) -> int:
    return sum(os.path.getsize(file) for file in files)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
