"""The clipboard of the system, beside the terminal's own (OSC 52), which not every terminal has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping

TERMINAL_LIMIT = 75_000
"""Bytes that terminals and tmux take by OSC 52, where the text is a third longer."""

_PATIENCE_S = 5


def system_command(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> list[str] | None:
    """The program that puts its standard input on the clipboard of this desktop; None if there is none."""
    candidates = []
    if platform == "darwin":
        candidates.append(["pbcopy"])
    elif platform == "win32":
        candidates.append(["clip"])
    else:
        if environ.get("WAYLAND_DISPLAY"):
            candidates.append(["wl-copy"])
        if environ.get("DISPLAY"):
            candidates += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    for name, *arguments in candidates:
        if program := shutil.which(name, path=environ.get("PATH")):
            return [program, *arguments]
    return None


def copy_to_system(command: list[str], text: str, platform: str = sys.platform) -> bool:
    """Give a text to such a program; returns whether it took it. Takes up to some seconds."""
    data = text.encode("utf-16-le" if platform == "win32" else "utf-8", "replace")
    try:
        done = subprocess.run(
            command, input=data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
