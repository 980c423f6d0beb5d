"""Memory figures from made-up /proc and /sys trees, and the context that fits."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.errors import MemoryLimitError
from engine.memory import (
    available_memory,
    choose_context,
    linux_available_memory,
    parse_vm_stat,
    resident_bytes,
)
from engine.units import format_bytes

GIB = 2**30
UNLIMITED_V1 = 9223372036854771712

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               10000.
Pages active:                            200000.
Pages inactive:                           30000.
Pages speculative:                          500.
Pages throttled:                              0.
Pages wired down:                        100000.
Pages purgeable:                             20.
"Translation faults":                 123456789.
"""


def write_tree(root: Path, files: dict[str, object]) -> None:
    for name, content in {"proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 16777216 kB\n", **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def test_the_kernels_estimate_counts_where_no_group_limits(tmp_path: Path) -> None:
    write_tree(tmp_path, {})
    assert linux_available_memory(tmp_path) == 16 * GIB


def test_a_version_2_group_limits_and_its_idle_file_cache_can_be_dropped(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/user/app"
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/app",
            f"{group}/memory.max": 4 * GIB,
            f"{group}/memory.current": 3 * GIB,
            f"{group}/memory.stat": f"anon 5\ninactive_file {2**20}\nactive_file 7",
        },
    )
    assert linux_available_memory(tmp_path) == GIB + 2**20


def test_a_parents_tighter_limit_wins(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user/app",
            "sys/fs/cgroup/user/memory.max": 2 * GIB,
            "sys/fs/cgroup/user/memory.current": GIB,
            "sys/fs/cgroup/user/app/memory.max": "max",
            "sys/fs/cgroup/user/app/memory.current": 0,
        },
    )
    assert linux_available_memory(tmp_path) == GIB


def test_a_version_1_group_limits(tmp_path: Path) -> None:
    memory = "sys/fs/cgroup/memory"
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a\n0::/",
            f"{memory}/memory.limit_in_bytes": UNLIMITED_V1,
            f"{memory}/memory.usage_in_bytes": 9 * GIB,
            f"{memory}/a/memory.limit_in_bytes": 8 * GIB,
            f"{memory}/a/memory.usage_in_bytes": 3 * GIB,
            f"{memory}/a/memory.stat": f"cache 1\ntotal_inactive_file {GIB}",
        },
    )
    assert linux_available_memory(tmp_path) == 6 * GIB


def test_a_containers_group_path_of_the_host_is_skipped(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/0123456789ab",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": GIB,
            "sys/fs/cgroup/memory/memory.usage_in_bytes": 0,
        },
    )
    assert linux_available_memory(tmp_path) == GIB


def test_a_group_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": GIB,
            "sys/fs/cgroup/memory.current": 2 * GIB,
        },
    )
    assert linux_available_memory(tmp_path) == 0


def test_vm_stat_pages_that_can_be_taken() -> None:
    assert parse_vm_stat(VM_STAT) == (10000 + 30000 + 500 + 20) * 16384


def test_this_machine_has_memory() -> None:
    assert 2**20 < available_memory() < 2**50


@pytest.mark.skipif(sys.platform == "win32", reason="reads the peak from getrusage")
def test_resident_bytes_follow_an_allocation() -> None:
    before = resident_bytes()
    block = bytearray(64 * 2**20)
    grown = resident_bytes()
    block[:] = b"x" * len(block)
    assert 60 * 2**20 < resident_bytes() - before < 80 * 2**20
    assert before < 2**40
    assert grown >= before


def test_a_context_that_fits_is_granted_even_beyond_the_trained_one() -> None:
    assert choose_context(1000, trained=10, bytes_per_token=1024, available=1000 * 1024) == 1000


def test_a_context_that_does_not_fit_says_what_would() -> None:
    with pytest.raises(MemoryLimitError) as caught:
        choose_context(2_000_000, trained=8192, bytes_per_token=24 * 1024, available=12 * GIB)
    assert str(caught.value) == (
        "A context of 2,000,000 tokens needs 45.8 GiB of KV memory, 12.0 GiB are available: "
        "use --context 524288 or less to fit."
    )
    assert choose_context(524288, trained=8192, bytes_per_token=24 * 1024, available=12 * GIB) == 524288


@pytest.mark.parametrize("requested", [300, None])
def test_when_not_even_a_small_context_fits_the_advice_is_no_number(requested: int | None) -> None:
    with pytest.raises(MemoryLimitError, match="smaller model"):
        choose_context(requested, trained=8192, bytes_per_token=2**20, available=200 * 2**20)


def test_without_a_request_the_trained_context_is_reduced_to_half_the_memory() -> None:
    assert choose_context(None, trained=8192, bytes_per_token=1024, available=GIB) == 8192
    assert choose_context(None, trained=8192, bytes_per_token=2**20, available=4 * GIB) == 2048
    assert choose_context(None, trained=100, bytes_per_token=2**20, available=4 * GIB) == 100


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1536 * 2**20, "1.5 GiB"), (2**52, "4,096.0 TiB")],
)
def test_bytes_for_people(n: int, text: str) -> None:
    assert format_bytes(n) == text
