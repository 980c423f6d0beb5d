"""The system's clipboard, where a program of the test's stands for the desktop's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.chat.clipboard import copy_to_system, system_command


def install(folder: Path, *names: str, body: str = 'cat > "$0.text"; printf "%s" "$*" > "$0.arguments"') -> None:
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("platform", "variables", "programs", "expected"),
    [
        ("linux", {"DISPLAY": ":0"}, ["xclip", "xsel"], ["xclip", "-selection", "clipboard"]),
        ("linux", {"DISPLAY": ":0"}, ["xsel"], ["xsel", "--clipboard", "--input"]),
        ("linux", {"DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, ["xclip", "wl-copy"], ["wl-copy"]),
        ("linux", {"DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, ["xclip"], ["xclip", "-selection", "clipboard"]),
        ("linux", {}, ["xclip", "wl-copy"], None),
        ("linux", {"DISPLAY": ":0"}, [], None),
        ("darwin", {}, ["pbcopy"], ["pbcopy"]),
        ("win32", {}, ["clip"], ["clip"]),
    ],
)
def test_which_program(
    platform: str, variables: dict[str, str], programs: list[str], expected: list[str] | None, tmp_path: Path
) -> None:
    install(tmp_path, *programs)
    command = system_command({**variables, "PATH": str(tmp_path)}, platform)
    assert command == (None if expected is None else [str(tmp_path / expected[0]), *expected[1:]])


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_the_text_goes_by_standard_input_as_it_is(tmp_path: Path) -> None:
    install(tmp_path, "xclip")
    command = system_command({"DISPLAY": ":0", "PATH": str(tmp_path)}, "linux")
    assert command is not None
    text = "$(touch pwned) `x` -rf\n\x1b[31m äöü 北京 \ud800"
    assert copy_to_system(command, text)
    assert (tmp_path / "xclip.text").read_bytes() == text.encode("utf-8", "replace")
    assert (tmp_path / "xclip.arguments").read_text() == "-selection clipboard"


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
def test_a_program_that_fails_is_no_error(tmp_path: Path) -> None:
    install(tmp_path, "xclip", body="exit 3")
    assert not copy_to_system([str(tmp_path / "xclip")], "x" * 1_000_000)
    assert not copy_to_system([str(tmp_path / "missing")], "x")
