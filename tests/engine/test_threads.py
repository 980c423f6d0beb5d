"""The number of threads, from made-up /sys trees of real processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.threads import (
    linux_usable_cores,
    linux_usable_processors,
    parse_cpu_list,
    usable_cores,
    usable_processors,
)


def write_tree(root: Path, files: dict[str, object]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def cpu_files(siblings: list[str], capacities: list[int] | None = None) -> dict[str, object]:
    files: dict[str, object] = {}
    for cpu, names in enumerate(siblings):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = names
        if capacities:
            files[f"sys/devices/system/cpu/cpu{cpu}/cpu_capacity"] = capacities[cpu]
    return files


HYPER_THREADED = ["0,4", "1,5", "2,6", "3,7"] * 2


def test_hyper_threads_of_a_core_count_once(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files(HYPER_THREADED))
    assert linux_usable_cores(set(range(8)), tmp_path) == 4


def test_affinity_limits(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files(HYPER_THREADED))
    assert linux_usable_cores({0, 4, 5}, tmp_path) == 2


def test_intel_efficiency_cores_are_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files(["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]))
    write_tree(tmp_path, {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"})
    assert linux_usable_cores(set(range(8)), tmp_path) == 2


def test_efficiency_cores_are_better_than_none(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files(["0-1", "0-1", "2", "3", "4"]))
    write_tree(tmp_path, {"sys/devices/cpu_core/cpus": "0-1"})
    assert linux_usable_cores({2, 3, 4}, tmp_path) == 3


def test_arm_little_cores_are_left_out_and_middle_ones_kept(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files([str(cpu) for cpu in range(8)], [380] * 4 + [871] * 3 + [1024]))
    assert linux_usable_cores(set(range(8)), tmp_path) == 4


def test_without_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    assert linux_usable_cores({0, 1, 2}, tmp_path) == 3


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "250000 100000"}, 2),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "50000 100000"}, 1),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, 4),
        (
            {
                "proc/self/cgroup": "0::/a/b",
                "sys/fs/cgroup/a/cpu.max": "300000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/a",
                "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            2,
        ),
    ],
)
def test_a_cpu_quota_limits(tmp_path: Path, files: dict[str, object], expected: int) -> None:
    write_tree(tmp_path, cpu_files(HYPER_THREADED))
    write_tree(tmp_path, files)
    assert linux_usable_cores(set(range(8)), tmp_path) == expected


def test_processors_are_of_every_kind_and_within_the_quota(tmp_path: Path) -> None:
    write_tree(tmp_path, cpu_files(["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"]))
    write_tree(tmp_path, {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-7"})
    assert linux_usable_processors(set(range(8)), tmp_path) == 8
    assert linux_usable_processors({1, 2, 5}, tmp_path) == 3
    write_tree(tmp_path, {"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "250000 100000"})
    assert linux_usable_processors(set(range(8)), tmp_path) == 2


def test_cpu_lists() -> None:
    assert parse_cpu_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert parse_cpu_list("") == set()


def test_this_machine_has_a_core() -> None:
    assert usable_processors() >= usable_cores() >= 1
