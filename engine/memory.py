"""Physical memory: what is available, what this process holds, and how long a context fits in it."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

from engine.cgroup import ROOT, limit_folders, read_fields
from engine.errors import MemoryLimitError
from engine.units import format_bytes

_CONTEXT_STEP = 256
"""Contexts that Octavo chooses are multiples of this, as llama.cpp rounds its own."""


def available_memory() -> int:
    """Bytes this process can still take without swapping, page cache that can be dropped included.

    Linux: the smaller of the kernel's estimate and what the control groups leave. macOS: free,
    inactive, speculative and purgeable pages. Windows: available physical memory.
    """
    if sys.platform == "darwin":
        return parse_vm_stat(subprocess.run(["vm_stat"], capture_output=True, text=True, check=True).stdout)
    if sys.platform == "win32":
        return _windows_available()
    return linux_available_memory()


def linux_available_memory(root: Path = ROOT) -> int:
    """`available_memory` from the /proc and /sys below `root`.

    A control group's file cache that was not used lately counts as available, as MemAvailable counts it.
    """
    available = _labelled_number(read_fields(root / "proc/meminfo"), "MemAvailable:") * 1024
    for folder in limit_folders("memory", root):
        for limit_name, usage_name, cache_label in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, usage = read_fields(folder / limit_name), read_fields(folder / usage_name)
            if not limit or not usage or limit[0] == "max":
                continue
            cache = _labelled_number(read_fields(folder / "memory.stat"), cache_label)
            available = min(available, max(0, int(limit[0]) - int(usage[0]) + cache))
    return available


def _labelled_number(fields: list[str], label: str) -> int:
    """The number that follows `label` in a list of words, 0 when it is absent."""
    return int(fields[fields.index(label) + 1]) if label in fields else 0


def parse_vm_stat(text: str) -> int:
    """Available bytes from the output of macOS's vm_stat(1)."""
    page_size = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)\.", text, re.MULTILINE)
    return sum(map(int, pages)) * int(page_size[1]) if page_size else 0


def resident_bytes() -> int:
    """Physical memory that this process holds now, in bytes (mapped file pages included)."""
    if sys.platform == "darwin":
        return _macos_resident()
    if sys.platform == "win32":
        return _windows_resident()
    return int(read_fields(Path("/proc/self/statm"))[1]) * os.sysconf("SC_PAGE_SIZE")


def choose_context(requested: int | None, trained: int, bytes_per_token: int, available: int) -> int:
    """Tokens one sequence can hold, given the KV bytes of a token and the bytes that are available.

    A request is granted up to the memory that is available, also beyond the `trained` context: llama.cpp
    does the same, some models extend well, and the caller can tell the user (context > trained). Without
    a request it is the trained context, reduced to what fits half of the available memory, so that the
    rest of the machine goes on living.

    Raises MemoryLimitError when the request, or even the smallest context, does not fit.
    """
    if requested is not None:
        needed = requested * bytes_per_token
        if needed <= available:
            return requested
        fits = available // bytes_per_token // _CONTEXT_STEP * _CONTEXT_STEP
        advice = f"use --context {fits} or less to fit" if fits else "close other programs, or use a smaller model"
        raise MemoryLimitError(
            f"A context of {requested:,} tokens needs {format_bytes(needed)} of KV memory, "
            f"{format_bytes(available)} are available: {advice}."
        )
    fits = available // 2 // bytes_per_token // _CONTEXT_STEP * _CONTEXT_STEP
    context = min(trained, fits)
    if context <= 0:
        raise MemoryLimitError(
            f"Only {format_bytes(available)} of memory are available, too little for the KV memory of a conversation "
            f"({format_bytes(bytes_per_token)} a token): close other programs, or use a smaller model."
        )
    return context


class _TaskInfo(ctypes.Structure):
    """struct proc_taskinfo of macOS's sys/proc_info.h."""

    _fields_ = (
        ("virtual_size", ctypes.c_uint64),
        ("resident_size", ctypes.c_uint64),
        ("times", ctypes.c_uint64 * 4),
        ("counters", ctypes.c_int32 * 12),
    )


def _macos_resident() -> int:
    """Asks proc_pidinfo(3), flavour PROC_PIDTASKINFO; getrusage knows only the peak."""
    info = _TaskInfo()
    ctypes.CDLL("/usr/lib/libproc.dylib").proc_pidinfo(
        os.getpid(), 4, ctypes.c_uint64(0), ctypes.byref(info), ctypes.sizeof(info)
    )
    return int(info.resident_size)


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of the Windows API."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total_physical", ctypes.c_uint64),
        ("available_physical", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


class _ProcessMemory(ctypes.Structure):
    """PROCESS_MEMORY_COUNTERS of the Windows API."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("page_faults", ctypes.c_uint32),
        ("peak_working_set", ctypes.c_size_t),
        ("working_set", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 6),
    )


if sys.platform == "win32":

    def _windows_available() -> int:
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.available_physical)

    def _windows_resident() -> int:
        kernel32 = ctypes.windll.kernel32
        kernel32.GetCurrentProcess.restype = ctypes.c_void_p
        process = ctypes.c_void_p(kernel32.GetCurrentProcess())
        counters = _ProcessMemory(size=ctypes.sizeof(_ProcessMemory))
        kernel32.K32GetProcessMemoryInfo(process, ctypes.byref(counters), counters.size)
        return int(counters.working_set)
