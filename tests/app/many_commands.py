"""Run as a program: many command lines in one process, so that they cost one start.

Reads from standard input a JSON list of command lines, such as ["show", "model.gguf"], and writes one of what they
said: [exit code, standard output, standard error]. The line ["load", PATH] is what the engine's process of
`octavo run` does with a model.
"""

from __future__ import annotations

import json
import sys

from engine.errors import OctavoError
from tests.app.command import octavo_here


def _run(arguments: list[str]) -> tuple[int, str, str]:
    result = octavo_here(*arguments)
    return result.returncode, result.stdout, result.stderr


def _load(path: str) -> tuple[int, str, str]:
    from engine.config import EngineConfig  # native code, which the command line does without
    from engine.loader import load_engine

    try:
        load_engine(path, EngineConfig(device="CPU"), lambda _: None).engine.close()
    except OctavoError as error:
        return 1, "", f"octavo: {error}\n"
    return 0, "", ""


if __name__ == "__main__":
    command_lines: list[list[str]] = json.load(sys.stdin)
    said = [_load(*rest) if command == "load" else _run([command, *rest]) for command, *rest in command_lines]
    json.dump(said, sys.stdout)
