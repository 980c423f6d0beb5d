"""The processor's name from real kinds of /proc/cpuinfo."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.processor import processor_name

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/cpuinfo")

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 7 5800X 8-Core Processor\n\n"
ARM = "processor\t: {}\nCPU implementer\t: 0x41\nCPU variant\t: 0x4\nCPU part\t: 0xd0b\nCPU revision\t: 1\n\n"


def test_x86(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(X86 * 2)
    assert processor_name(file) == "AMD Ryzen 7 5800X 8-Core Processor"


def test_arm_has_numbers_for_a_name(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(ARM.format(0) + ARM.format(1))
    assert processor_name(file) == "0x41 0xd0b 0x4 1"


def test_no_file_and_no_control_characters(tmp_path: Path) -> None:
    assert processor_name(tmp_path / "missing")
    file = tmp_path / "cpuinfo"
    file.write_bytes(X86.replace("Ryzen", "\x1b[31m").encode() + b"\xff")
    assert "\x1b" not in processor_name(file)
