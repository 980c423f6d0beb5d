"""Where Linux keeps the limits that a container or service manager put on this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
"""Root of the file system that is asked; tests pass a folder with a made-up /proc and /sys."""


def limit_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Folders whose files limit this process, its own control group first, then each of its parents.

    Every level counts, because the tightest limit wins. Covers version 2 (one tree) and version 1 (one
    tree per controller, such as "memory" or "cpu"); see cgroups(7). Inside a container the group's path
    may be the host's: the levels that do not exist here are skipped, the mount's own root remains.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if not controllers:
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        here = mount / group.lstrip("/")
        for folder in (here, *here.parents):
            if folder.is_dir():
                yield folder
            if folder == mount:
                break


def read_fields(path: Path) -> list[str]:
    """Words of a small kernel file, or none when it does not exist or may not be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []
