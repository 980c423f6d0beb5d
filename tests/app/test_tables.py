"""Tables on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from app.tables import Column, write_table
from tests.app.command import ROOT

PATH = "/home/someone/models/" + "a" * 100 + ".gguf"
ROWS = (("1", "one", "10 KiB", PATH), ("12", "another\x1b[31m model\n", "1,000.5 GiB", PATH))
COLUMNS = (Column("", is_number=True), Column("NAME"), Column("SIZE", is_number=True), Column("PATH"))


def test_nothing_is_cut_in_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    write_table(COLUMNS, ROWS)
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["PATH", PATH, PATH]
    assert "another␛[31m model␊" in lines[2]


@pytest.mark.parametrize("width", [40, 80])
def test_numbers_are_not_cut_on_a_narrow_terminal(width: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    program = "from app.tables import *; from tests.app.test_tables import *; write_table(COLUMNS, ROWS)"
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-c", program]
    subprocess.run(command, stdin=theirs, stdout=theirs, cwd=Path(ROOT), env=variables, check=True)
    os.close(theirs)
    lines = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert len(lines) == 3
    assert all(len(line) <= width for line in lines)
    assert lines[1].split()[:2] == ["1", "one"]
    assert "10 KiB" in lines[1]
    assert lines[2].startswith("12  ano")
    assert "1,000.5 GiB" in lines[2]
    assert lines[2].endswith("…")
