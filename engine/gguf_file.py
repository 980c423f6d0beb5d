"""A model's metadata and tensor directory, from its one GGUF file or from all the files that it is split into.

llama.cpp's gguf-split names them NAME-00001-of-00003.gguf and so on. The first file has the metadata; the others have
keys that say which part of how many they are (split.no, from 0, split.count, split.tensors.count), and all of them
have tensors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from engine.errors import ModelFileError
from engine.gguf_header import GgufHeader, LongArray, Scalar, TensorInfo, Value, named, read_header
from engine.printable import one_line, quoted

__all__ = ["GgufFile", "LongArray", "Scalar", "TensorInfo", "Value"]


@dataclass(frozen=True)
class GgufFile:
    """What a model says about itself. Names and values are as in the file: use `quoted` to show them.

    paths: its files in order; `TensorInfo.shard` is an index of them. n_bytes: of all files.
    """

    paths: tuple[Path, ...]
    n_bytes: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]

    @property
    def path(self) -> Path:
        """The first file, by which the model is called."""
        return self.paths[0]

    @property
    def architecture(self) -> str:
        """Value of general.architecture, such as "llama"; empty if the file does not say."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GgufFile:
        """Read the directory of the file at `path`, and of the other parts of a split model beside it.

        Raises ModelFileError if a file is missing or unreadable, is no GGUF of a version and byte order that ggml
        reads, is damaged or cut short, or if `path` is a part of a split model that is not the first one.
        """
        first = read_header(Path(path))
        headers = [first]
        tensors = dict(first.tensors)
        if _count(first) > 1:
            paths = _part_paths(first)
            _check_present(paths)
            for index, part in enumerate(paths[1:], 1):
                headers.append(_read_part(part, index, len(paths)))
                _merge(tensors, headers[-1], first)
            _check_total(tensors, first)
        return cls(
            tuple(header.path for header in headers),
            sum(header.size for header in headers),
            MappingProxyType(dict(first.metadata)),
            MappingProxyType(tensors),
        )


def _count(header: GgufHeader) -> int:
    """Of how many files the model consists."""
    count = header.metadata.get("split.count", 1)
    assert isinstance(count, int)
    return count


def _suffix(number: int, count: int) -> str:
    """How the name of part `number`, from 1, ends."""
    return f"-{number:05}-of-{count:05}.gguf"


def _part_paths(header: GgufHeader) -> list[Path]:
    """Paths of all parts, beside the given one even if that is a link to elsewhere; refuses any but the first."""
    path, count, index = header.path, _count(header), header.metadata.get("split.no")
    if not isinstance(index, int) or index >= count:
        raise ModelFileError(
            f"{named(path)} is damaged: it is one of {count:,} files, but not which; download it again."
        )
    own = _suffix(index + 1, count)
    if not path.name.endswith(own):
        raise ModelFileError(
            f"{named(path)} is part {index + 1} of a model in {count:,} files, and its name does not end in '{own}' so "
            "that the others could be found: give all of them their original names."
        )
    parts = [path.with_name(path.name.removesuffix(own) + _suffix(number + 1, count)) for number in range(count)]
    if index:
        missing = "" if os.path.exists(parts[0]) else ", which is missing and has to be downloaded into the same folder"
        raise ModelFileError(
            f"'{one_line(path.name)}' is part {index + 1} of a model in {count:,} files: give the first one, "
            f"'{one_line(parts[0].name)}'{missing}."
        )
    return parts


def _check_present(paths: list[Path]) -> None:
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        others = f" and {len(missing) - 1:,} more are" if len(missing) > 1 else " is"
        raise ModelFileError(
            f"Of the {len(paths):,} files of the model '{one_line(str(paths[0]))}', '{one_line(missing[0].name)}'"
            f"{others} missing: download what is missing into the same folder."
        )


def _read_part(path: Path, index: int, count: int) -> GgufHeader:
    header = read_header(path, index)
    found = header.metadata.get("split.no"), header.metadata.get("split.count")
    if found != (index, count):
        raise ModelFileError(
            f"{named(path)} is not part {index + 1} of the same model in {count:,} files: download it again."
        )
    return header


def _merge(tensors: dict[str, TensorInfo], part: GgufHeader, first: GgufHeader) -> None:
    twice = next((name for name in part.tensors if name in tensors), None)
    if twice is not None:
        raise ModelFileError(
            f"{named(part.path)} does not belong to '{one_line(first.path.name)}': both have tensor {quoted(twice)}; "
            "download both again."
        )
    tensors.update(part.tensors)


def _check_total(tensors: Mapping[str, TensorInfo], first: GgufHeader) -> None:
    expected = first.metadata.get("split.tensors.count")
    if expected != len(tensors):
        raise ModelFileError(
            f"The files of the model '{one_line(str(first.path))}' do not belong together: they have {len(tensors):,} "
            f"tensors of {expected}; download them again."
        )
