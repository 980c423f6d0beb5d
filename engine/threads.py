"""How many threads a forward pass should use: as a rule one per physical performance core that this process may use.

A second thread on a core, or one on an efficiency core, makes the others wait at every barrier of the graph.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Set
from pathlib import Path

from engine.cgroup import ROOT, limit_folders, read_fields


def usable_cores() -> int:
    """Physical performance cores that this process may use, at least 1.

    Linux: affinity, hybrid core types, hyper-threads and CPU quotas are respected. macOS: the cores of the
    highest performance level. Elsewhere: the logical processors that the system counts.
    """
    if sys.platform == "linux":
        return linux_usable_cores(os.sched_getaffinity(0))
    if sys.platform == "darwin":
        return _count("hw.perflevel0.physicalcpu") or _count("hw.physicalcpu") or 1
    return os.cpu_count() or 1


def usable_processors() -> int:
    """Logical processors that this process may use, at least 1: of every kind, hyper-threads counted."""
    if sys.platform == "linux":
        return linux_usable_processors(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def linux_usable_cores(affinity: Set[int], root: Path = ROOT) -> int:
    """`usable_cores` for a process that may run on the logical processors `affinity`, from the files below `root`."""
    cores = {_siblings(cpu, root) for cpu in _performance_cpus(affinity, root)}
    return max(1, min([len(cores), *_quotas(root)]))


def linux_usable_processors(affinity: Set[int], root: Path = ROOT) -> int:
    """`usable_processors` for a process that may run on `affinity`, from the files below `root`."""
    return max(1, min([len(affinity), *_quotas(root)]))


def _performance_cpus(affinity: Set[int], root: Path) -> Set[int]:
    """The fast ones of the logical processors `affinity`; all of them where the kernel tells no difference.

    Intel's hybrid processors list theirs in one file. Arm's and others give each a capacity from 0 to 1024:
    those with at least half of the greatest count, which takes in the middle cores of a three-tier phone chip.
    """
    listed = affinity & parse_cpu_list(",".join(read_fields(root / "sys/devices/cpu_core/cpus")))
    if listed:
        return listed
    capacities = {
        cpu: int(capacity[0])
        for cpu in affinity
        if (capacity := read_fields(root / f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"))
    }
    if len(capacities) < len(affinity):
        return affinity
    return {cpu for cpu, capacity in capacities.items() if capacity * 2 >= max(capacities.values())}


def _siblings(cpu: int, root: Path) -> str:
    """Names the physical core of a logical processor: the list of the processors on it."""
    words = read_fields(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    return words[0] if words else str(cpu)


def _quotas(root: Path) -> list[int]:
    """Whole processors' worth of time that each control group grants this process."""
    quotas = []
    for folder in limit_folders("cpu", root):
        limit = read_fields(folder / "cpu.max") or [
            *read_fields(folder / "cpu.cfs_quota_us"),
            *read_fields(folder / "cpu.cfs_period_us"),
        ]
        if len(limit) == 2 and limit[0] not in ("max", "-1"):
            quotas.append(int(limit[0]) // int(limit[1]))
    return quotas


def parse_cpu_list(text: str) -> set[int]:
    """Numbers of a kernel CPU list such as "0-3,8,10-11"."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def sysctl(name: str) -> str:
    """What macOS knows by `name`, "" when it does not know it."""
    return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False).stdout.strip()


def _count(name: str) -> int:
    """A number that macOS knows by `name`, 0 when it does not know it."""
    answer = sysctl(name)
    return int(answer) if answer.isdecimal() else 0
