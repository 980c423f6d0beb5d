"""What `octavo quantize` starts from when it is on the hub: a GGUF file, or the files of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from app.progress import byte_progress, label
from app.quantize_source import Source
from app.terminal import StatusLine
from engine.printable import listed, one_line, quoted
from engine.units import format_bytes
from models.catalogue import Catalogue
from models.conversion.checkpoint import checkpoint_files, checkpoint_name
from models.conversion.convert import check_convertible
from models.errors import HubError, QuantizeError
from models.hub.cache import cached_paths
from models.hub.download import download
from models.hub.pulled import install
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile
from models.hub.repository import RemoteRepository, repository
from models.hub.variants import Variant, matching, offered, variants_of
from models.quantization.quantize import why_not_again
from models.quantization.types import without_type

_FLOATS = ("BF16", "F16", "F32")
"""In the order in which they are taken; then a checkpoint, and only then Q8_0."""

_WORTH_A_NOTE = 64 * 2**20
"""Bytes of a download; smaller ones are over before the note is read."""


def fetch_source(reference: HubReference, *, allow_requantize: bool, status: StatusLine) -> Source:
    """What the hub has under `reference`, in the hub's cache; a GGUF file is installed, as `octavo pull` does it.

    allow_requantize: without it, a file that is called quantized is refused before it is downloaded.
    Raises HubError, DownloadError, QuantizeError, ConversionError or CatalogueError.
    """
    status.show(f"Asking the hub about {reference.repository}")
    try:
        remote = repository(reference)
    finally:
        status.clear()
    variant = _chosen(remote)
    if variant and variant.quantization not in ("", *_FLOATS) and not allow_requantize:
        raise QuantizeError(why_not_again(f"{remote.name}:{variant.name}", [variant.quantization.lower()]))
    if variant:
        paths = _fetch(remote, variant.files, variant.stem, status)
        return Source(paths[0], without_type(install(Catalogue(), remote, variant, paths).name))
    names = checkpoint_files([file.name for file in remote.files])
    files = [file for file in remote.files if file.name in names]
    described = _fetch(remote, [file for file in files if not file.name.endswith(".safetensors")], remote.name, status)
    folder = next(path.parent for path in described if path.name == "config.json")
    check_convertible(folder)
    _fetch(remote, files, remote.name, status)
    return Source(folder, checkpoint_name(folder))


def _chosen(remote: RemoteRepository) -> Variant | None:
    """The GGUF that was asked for, or else the best to start from; None is the repository's checkpoint."""
    variants, wanted = variants_of(remote.files), remote.reference.variant
    if wanted:
        found = matching(variants, wanted)
    elif _has_checkpoint(remote):
        found = _best(variants, _FLOATS)
        if not found:
            return None
    else:
        found = _best(variants, (*_FLOATS, "Q8_0"))
    if len(found) == 1:
        return found[0]
    names = listed(one_line(variant.name) for variant in variants)
    if found:
        raise HubError(f"{remote.name} has several models that this could mean: give one of {names} after a colon.")
    if wanted:
        raise HubError(f"There is no {quoted(wanted)} in {remote.name}: it has {names or 'no GGUF files'}.")
    if variants:
        raise HubError(
            f"{remote.name} has neither a checkpoint nor an F16, BF16, F32 or Q8_0 GGUF to start from: name one of "
            f"{names} after a colon, or find the model it was made from."
        )
    raise HubError(f"{remote.name} holds no model: it has neither a config.json with safetensors nor a GGUF file.")


def _has_checkpoint(remote: RemoteRepository) -> bool:
    names = {file.name for file in remote.files}
    return "config.json" in names and any(name.endswith(".safetensors") for name in names)


def _best(variants: Sequence[Variant], quantizations: Sequence[str]) -> list[Variant]:
    """All of the first of the quantizations that there is."""
    for quantization in quantizations:
        found = [variant for variant in offered(variants) if variant.quantization == quantization]
        if found:
            return found
    return []


def _fetch(remote: RemoteRepository, files: Sequence[RemoteFile], name: str, status: StatusLine) -> tuple[Path, ...]:
    """Their paths in the hub's cache, downloaded if they are not there. Raises HubError or DownloadError."""
    cached = cached_paths(remote.name, remote.commit, files)
    if cached:
        return cached
    n_bytes = sum(file.n_bytes for file in files)
    if n_bytes >= _WORTH_A_NOTE:
        status.note(f"Downloading {name}: {format_bytes(n_bytes)}.")
    with byte_progress() as bars:
        bar = bars.add_task(label(name), total=n_bytes)

        def progress(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        return download(remote.name, remote.reference.revision, files, progress)
