"""What `octavo quantize` starts from: a GGUF file, or a checkpoint that is converted to one first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from app.terminal import StatusLine
from engine.errors import ModelFileError
from engine.printable import quoted
from models.catalogue import Catalogue
from models.conversion.checkpoint import checkpoint_name, is_checkpoint
from models.locate import check_present, hub_reference, locate
from models.quantization.types import without_type
from models.shards import without_shard_number


class Source(NamedTuple):
    """path: of the first shard, or of a checkpoint's folder. name: of the model, without its type."""

    path: Path
    name: str

    @property
    def is_checkpoint(self) -> bool:
        """Whether it has to be converted to GGUF before anything else."""
        return os.path.isdir(self.path)


def find_source(text: str, *, allow_requantize: bool, status: StatusLine) -> Source:
    """The source that `text` names: a path, an installed model or, downloaded if need be, a model on the hub.

    allow_requantize: without it, a file on the hub that is called quantized is refused before it is downloaded.
    Raises ModelFileError, HubError, DownloadError, QuantizeError, ConversionError or CatalogueError.
    """
    path = Path(os.path.expanduser(text))
    if os.path.isdir(path):
        if not is_checkpoint(path):
            raise ModelFileError(
                f"{quoted(text)} is a folder without a config.json: give a .gguf file, or the folder of a checkpoint."
            )
        return Source(path, checkpoint_name(path))
    if os.path.isfile(path):
        return _from_file(path)
    catalogue, reference = Catalogue(), hub_reference(text)
    installed = catalogue.find(text) or (catalogue.find(str(reference)) if reference else None)
    if installed:
        return Source(check_present(installed).path, without_type(installed.name))
    if reference is None:
        return _from_file(locate(text))  # which says what is installed
    from app.quantize_download import fetch_source  # noqa: PLC0415 - huggingface_hub would delay every start

    return fetch_source(reference, allow_requantize=allow_requantize, status=status)


def _from_file(path: Path) -> Source:
    return Source(path, without_type(without_shard_number(path.name.removesuffix(".gguf"))))
