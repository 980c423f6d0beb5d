"""Room on disks."""

from __future__ import annotations

import shutil
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """What is free on the disk of a folder, which need not exist yet. Raises OSError."""
    folder = folder.absolute()
    existing = next(place for place in (folder, *folder.parents) if place.is_dir())
    return shutil.disk_usage(existing).free
