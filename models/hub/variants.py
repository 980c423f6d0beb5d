"""The variants of a model in a repository on the hub: its quantizations, each in one file or in several shards.

All of it is told from file names, as there is nothing else before a download.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from models.hub.remote_file import RemoteFile
from models.shards import shard_names, without_shard_number

_TYPE = re.compile(
    r"(?:^|(?<=[-._ ]))"
    r"(?P<type>(?:UD-)?I?Q[1-8](?:_(?:K|NL|XXS|XS|S|M|L|XL|XXL|\d))*|(?:UD-)?TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|FP?16|FP?32)"
    r"(?=$|[-._ ])",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
_DRAFT = re.compile(r"(?:^|[-._ ])draft(?:$|[-._ ])", re.IGNORECASE)
_SEPARATORS = "-._ "
_FLOATS = {"F16": 16, "BF16": 16, "F32": 32}


@dataclass(frozen=True)
class Variant:
    """One quantization of one model of a repository.

    name: what to write after the repository and a colon; unique in the repository. model: the file's name up to the
    quantization, which tells the models of one repository apart. quantization: as its name is usually written, with
    what follows it in the file's name; empty if the name does not tell. files: the shards in order.
    is_draft: a small model that only speeds up another one.
    """

    name: str
    model: str
    quantization: str
    files: tuple[RemoteFile, ...]
    is_draft: bool = False

    @property
    def n_bytes(self) -> int:
        """Of all shards."""
        return sum(file.n_bytes for file in self.files)

    @property
    def stem(self) -> str:
        """Name of the file without folder, shard number and .gguf."""
        return _stem(self.files[0].name)

    @property
    def nominal_bits(self) -> int | None:
        """Bits that the name of the quantization promises for most weights: 4 of Q4_K_M."""
        name = self.quantization.removeprefix("UD-")
        kind = next((bits for prefix, bits in _FLOATS.items() if name.startswith(prefix)), None)
        digit = re.match(r"\D*(\d)", name)
        return kind or (int(digit[1]) if digit else None)

    @property
    def is_simple(self) -> bool:
        """Whether its type is one of ggml's first, which lose more quality than others of the same bits: Q4_1."""
        return re.fullmatch(r"Q[45]_[01]", self.quantization) is not None

    @property
    def is_obsolete(self) -> bool:
        """Whether ggml has dropped its type: Q4_0 with interleaved rows, Q4_0_4_4 and so on."""
        return re.match(r"Q4_0_\d_\d", self.quantization) is not None

    def bits_per_weight(self, parameters: int | None) -> float | None:
        """8 × bytes / parameters; None where they cannot be the parameters of this file."""
        bits = 8 * self.n_bytes / parameters if parameters else 0.0
        return bits if 0.5 <= bits <= 40 else None


def variants_of(files: Iterable[RemoteFile]) -> list[Variant]:
    """The variants that are complete in a listing of files, by size, drafts last.

    Image encoders (mmproj) and importance matrices are left out. Drafts are models like others where there is
    nothing else.
    """
    by_name = {file.name: file for file in files if file.name.lower().endswith(".gguf")}
    found = []
    for name in by_name:
        shards = _shard_paths(name)
        if shards[0] == name and all(shard in by_name for shard in shards) and not _is_no_model(name):
            found.append(_variant(tuple(by_name[shard] for shard in shards)))
    if all(variant.is_draft for variant in found):
        found = [replace(variant, is_draft=False) for variant in found]
    counts = Counter(variant.quantization.lower() for variant in found if not variant.is_draft)
    named = [
        variant
        if not variant.is_draft and variant.quantization and counts[variant.quantization.lower()] == 1
        else replace(variant, name=variant.stem)
        for variant in found
    ]
    stems = Counter(variant.name for variant in named)
    unique = [
        variant if stems[variant.name] == 1 else replace(variant, name=variant.files[0].name) for variant in named
    ]
    return sorted(unique, key=lambda variant: (variant.is_draft, variant.n_bytes, variant.name))


def offered(variants: Sequence[Variant]) -> list[Variant]:
    """Those to choose from when nothing is said: all but the drafts."""
    return [variant for variant in variants if not variant.is_draft]


def matching(variants: Sequence[Variant], wanted: str) -> list[Variant]:
    """Those that `wanted` means: a quantization, the name of a file, or the end of one; in any case.

    More than one where a repository has several models of that quantization.
    """
    text = wanted.lower()
    stem = text.removesuffix(".gguf")
    tests = (
        lambda variant: variant.name.lower() == text,
        lambda variant: any(file.name.lower() in (text, stem + ".gguf") for file in variant.files),
        lambda variant: not variant.is_draft and variant.quantization.lower() == text,
        lambda variant: any(PurePosixPath(file.name.lower()).name == stem + ".gguf" for file in variant.files),
        lambda variant: variant.stem.lower() == stem,
        lambda variant: not variant.is_draft and variant.stem.lower().endswith(("-" + text, "." + text)),
    )
    for test in tests:
        found = [variant for variant in variants if test(variant)]
        if found:
            return found
    return []


def _variant(files: tuple[RemoteFile, ...]) -> Variant:
    path = PurePosixPath(files[0].name)
    stem = _stem(path.name)
    match = _type_in(stem)
    if match:
        model = stem[: match.start()]
        quantization = _usual(match["type"]) + stem[match.end() :]
    else:
        folder = _type_in(path.parent.name)
        model, quantization = stem, _usual(folder["type"]) if folder else ""
    is_draft = _DRAFT.search(stem) is not None
    return Variant(quantization, model.strip(_SEPARATORS), quantization, files, is_draft)


def _type_in(text: str) -> re.Match[str] | None:
    """The first quantization named in `text`: what follows says more of it, as in Q4_K_M-fp16."""
    matches = list(_TYPE.finditer(text))
    quantized = (match for match in matches if _usual(match["type"]) not in _FLOATS)
    return next(quantized, matches[0] if matches else None)


def _usual(type_name: str) -> str:
    return type_name.upper().replace("FP16", "F16").replace("FP32", "F32")


def _is_no_model(name: str) -> bool:
    """Whether a file holds something else; a quantization made *with* an importance matrix may say so in its name."""
    stem = _stem(name)
    match = _NO_MODEL.search(stem)
    return match is not None and (match[0].lower() == "mmproj" or _type_in(stem) is None)


def _stem(name: str) -> str:
    return without_shard_number(PurePosixPath(name).name[: -len(".gguf")])


def _shard_paths(name: str) -> list[str]:
    path = PurePosixPath(name)
    return [str(path.with_name(shard)) for shard in shard_names(path.name)]
