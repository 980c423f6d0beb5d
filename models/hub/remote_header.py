"""The hyper-parameters of a GGUF file that has not been downloaded: its first few hundred KB, read over HTTP.

The format is described in ggml/docs/gguf.md. engine/gguf_header.py reads whole files with ggml's own parser; this reads
the beginning of one, stops before the vocabulary, and takes nothing in it on trust.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from huggingface_hub import constants, get_session, hf_hub_url, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers

from engine.errors import OctavoError
from engine.gguf_header import LONGEST_ARRAY
from models.hub.cache import cached_paths
from models.hub.explained import explained
from models.hub.remote_file import RemoteFile

_STEPS = (1 << 17, 1 << 20, 1 << 22)
"""Bytes from the beginning that are tried. The hyper-parameters come first; the vocabulary is up to 16 MB."""
_TIMEOUT_S = 5
"""It is for advice only, which can do without."""
_MAGIC = b"GGUF"

_STRING, _ARRAY = 8, 9
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""struct's formats of enum gguf_type."""


class Beginning(NamedTuple):
    """metadata: the values read, without arrays of more than LONGEST_ARRAY elements. is_enough: no more is needed."""

    metadata: Mapping[str, object]
    is_enough: bool


def remote_metadata(repository: str, commit: str, file: RemoteFile) -> Mapping[str, object] | None:
    """The keys of a GGUF file on the hub up to its vocabulary; None where they cannot be had."""
    here = cached_paths(repository, commit, (file,))
    data = b""
    for size in _STEPS:
        try:
            if here:
                with here[0].open("rb") as opened:
                    data = opened.read(size)
            else:
                data += _read(repository, commit, file.name, len(data), min(size, file.n_bytes))
            beginning = read_beginning(data)
        except (OctavoError, OSError, ValueError):
            return None
        if beginning.is_enough:
            return beginning.metadata
        if len(data) < size:
            return None  # the file ends before its keys do
    return None


def read_beginning(data: bytes) -> Beginning:
    """Read the keys of a file that begins with `data`. Raises ValueError if that is no GGUF."""
    reader = _Reader(data)
    metadata: dict[str, object] = {}
    try:
        if reader.take(4) != _MAGIC:
            raise ValueError("not a GGUF file")
        version = reader.number("<I")
        if version not in (2, 3):
            raise ValueError("another version of the format")
        reader.number("<Q")  # number of tensors
        for _ in range(reader.number("<Q")):
            key = reader.text()
            if key.startswith("tokenizer.") and _has_hyper_parameters(metadata):
                break
            value = reader.value(reader.number("<I"))
            if value is not None:
                metadata[key] = value
    except _Ended:
        return Beginning(metadata, False)
    return Beginning(metadata, True)


def _has_hyper_parameters(metadata: Mapping[str, object]) -> bool:
    return f"{metadata.get('general.architecture')}.block_count" in metadata


class _Ended(Exception):
    """What is read goes on beyond the bytes at hand."""


class _Reader:
    """Reads values one after the other. No length in the file leads to more work than there are bytes at hand."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, n: int) -> bytes:
        """The next n bytes. Raises _Ended."""
        if n > len(self._data) - self._position:
            raise _Ended
        self._position += n
        return self._data[self._position - n : self._position]

    def number(self, layout: str) -> int:
        """An integer in one of struct's formats. Raises _Ended."""
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def text(self) -> str:
        """A length and so many bytes of UTF-8. Raises _Ended."""
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> object:
        """A value of that enum gguf_type; None stands for a long array. Raises _Ended or ValueError."""
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self._array()
        if kind not in _FORMATS:
            raise ValueError(f"no type of value has the number {kind}")
        layout = _FORMATS[kind]
        value: object = struct.unpack(layout, self.take(struct.calcsize(layout)))[0]
        return value

    def _array(self) -> tuple[object, ...] | None:
        kind, n = self.number("<I"), self.number("<Q")
        if kind == _STRING and n > LONGEST_ARRAY:
            for _ in range(n):
                self.take(self.number("<Q"))
            return None
        if kind in _FORMATS and n > LONGEST_ARRAY:
            self.take(n * struct.calcsize(_FORMATS[kind]))
            return None
        if kind == _ARRAY:
            raise ValueError("arrays of arrays are not used")
        return tuple(self.value(kind) for _ in range(n))


def _read(repository: str, commit: str, name: str, start: int, end: int) -> bytes:
    """Bytes start to end of a file on the hub. Raises HubError; fewer come if the file ends."""
    if start >= end:
        return b""
    address = hf_hub_url(repository, name, revision=commit, endpoint=constants.ENDPOINT)
    headers = build_hf_headers() | {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with (
        explained(f"{repository}:{name}"),
        get_session().stream("GET", address, headers=headers, timeout=_TIMEOUT_S) as response,
    ):
        hf_raise_for_status(response)
        skipped = start if response.status_code == 200 else 0  # the whole file from a server that knows no ranges
        received = bytearray()
        for piece in response.iter_raw():
            received += piece
            if len(received) >= skipped + end - start:
                break
    return bytes(received[skipped : skipped + end - start])
