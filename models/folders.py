"""Where Octavo keeps its files: one function a folder, each movable by an environment variable.

The functions name the folders and do not create them.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "octavo"


def data_folder() -> Path:
    """What the user would miss: models and conversations. Moved by OCTAVO_DATA_DIR."""
    return _moved("OCTAVO_DATA_DIR") or platformdirs.user_data_path(_APP, appauthor=False)


def models_folder() -> Path:
    """Model files that Octavo wrote or copied, and those that the user put there; in the data folder."""
    return data_folder() / "models"


def cache_folder() -> Path:
    """What can be made again at some cost in time. Moved by OCTAVO_CACHE_DIR."""
    return _moved("OCTAVO_CACHE_DIR") or platformdirs.user_cache_path(_APP, appauthor=False)


def config_folder() -> Path:
    """What the user has set. Moved by OCTAVO_CONFIG_DIR."""
    return _moved("OCTAVO_CONFIG_DIR") or platformdirs.user_config_path(_APP, appauthor=False)


def _moved(variable: str) -> Path | None:
    """Made absolute, as the catalogue keeps paths; a ~ of an unknown user stays."""
    value = os.environ.get(variable)
    return Path(os.path.abspath(os.path.expanduser(value))) if value else None
