"""The name of this machine's processor."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from engine.printable import one_line
from engine.threads import sysctl


def processor_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """As the system calls it, such as "AMD Ryzen 7 5800X 8-Core Processor"; at worst the architecture."""
    return one_line(_system_name(cpuinfo) or platform.processor() or platform.machine() or "unknown processor")


def _system_name(cpuinfo: Path) -> str:
    if sys.platform == "darwin":
        return sysctl("machdep.cpu.brand_string")
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    fields = dict(_field(line) for line in reversed(lines))
    # x86 has a name; Arm has numbers of the maker, the design and its revision.
    numbers = (fields.get(name, "") for name in ("CPU implementer", "CPU part", "CPU variant", "CPU revision"))
    return fields.get("model name") or " ".join(filter(None, numbers))


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()
