"""The command line starts fast, because it leaves the native code to the engine's process."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.app.command import ROOT, octavo

HEAVY = ("llama_cpp", "numpy", "gguf", "jinja2", "textual", "huggingface_hub")


def test_the_command_line_imports_no_native_code() -> None:
    code = f"import sys, app.cli, engine.client; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.strip() == "[]"


def test_an_interrupt_at_the_very_end_shows_no_traceback() -> None:
    """When the command is done and Python closes what is left."""
    code = (
        "import atexit, os, signal, sys\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "sys.argv = ['octavo', '--version']\n"
        "from app.entry import main\n"
        "main()\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (result.returncode, result.stderr) == (-signal.SIGINT, "")
    assert result.stdout.startswith("octavo")


def test_help_names_every_option() -> None:
    result = octavo("run", "--help")
    assert result.returncode == 0
    for option in (
        *("--engine", "--temperature", "--top-k", "--top-p", "--min-p", "--repeat-penalty", "--seed", "--max-tokens"),
        *("--stop", "--system", "--context", "--threads", "--device", "--raw", "-n", "--json", "--batch"),
    ):
        assert f" {option} " in result.stdout
