"""Ctrl-C at every stage: what was generated is kept, the exit code tells, and nothing is left running."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.terminal import Interrupted, interrupts_to
from tests.app.command import COUNTING, ENDLESS, interrupt, start


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_while_generating(number: signal.Signals, code: int) -> None:
    process = start("run", *ENDLESS)
    assert process.stdout is not None
    assert process.stderr is not None
    text = process.stdout.read(4)
    interrupt(process, number)
    text += process.stdout.read()
    errors = process.stderr.read().decode()
    assert process.wait(60) == code
    assert text.startswith(b" 13 14 15"[: len(text) - 1])
    assert text.endswith(b"\n")
    assert "cancelled" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_while_reading_a_long_prompt(tiny_model: Callable[..., Path]) -> None:
    """The status line on a terminal says that the prompt is being read; the first time it does, the user interrupts."""
    model = tiny_model(tokenizer="gpt2", context=65_536, layers=4)
    output, errors = interrupt_when("Reading the prompt", "run", str(model), "ab " * 20_000, "--raw", "--json")
    answer = json.loads(output)
    assert answer["finish_reason"] == "cancelled"
    assert answer["generated_tokens"] == 0
    assert answer["ttft_s"] is None
    assert answer["computed_tokens"] < answer["prompt_tokens"]
    assert "Traceback" not in errors


def test_while_loading() -> None:
    output, errors = interrupt_when("Loading", "run", *ENDLESS)
    assert "Traceback" not in errors
    assert b"Traceback" not in output


def test_the_second_interrupt_acts_as_usual() -> None:
    """So that Ctrl-C twice gets out even when the engine does not react."""
    seen: list[Interrupted] = []
    with interrupts_to(seen.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert seen == [Interrupted(signal.SIGINT)]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_a_terminal_that_is_closed() -> None:
    """It is an interrupt too, unless the command was started with nohup(1)."""
    seen: list[Interrupted] = []
    usual = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with interrupts_to(seen.append):
            os.kill(os.getpid(), signal.SIGHUP)
        assert seen == [Interrupted(signal.SIGHUP)]
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with interrupts_to(seen.append):
            os.kill(os.getpid(), signal.SIGHUP)
        assert len(seen) == 1
    finally:
        signal.signal(signal.SIGHUP, usual)


def test_a_batch_keeps_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    quick = {"id": "quick", "prompt": COUNTING, "max_tokens": 2}
    file.write_text("\n".join(json.dumps(line) for line in (quick, {"id": "endless", "prompt": COUNTING})))
    process = start("run", *ENDLESS[1:], "--batch", str(file))
    assert process.stdout is not None
    output = b""
    while not output.endswith(b"\n"):
        output += process.stdout.read(1)
    interrupt(process)
    output += process.stdout.read()
    assert process.wait(60) == 130
    results = {result["id"]: result["finish_reason"] for result in map(json.loads, output.splitlines())}
    assert results == {"quick": "length", "endless": "cancelled"}


def test_a_batch_that_waits_for_input() -> None:
    """Nothing is in flight and the reader thread is blocked: the process must end all the same."""
    process = start("run", *ENDLESS[1:], "--max-tokens", "2", "--batch", "-", stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(json.dumps({"prompt": COUNTING}).encode() + b"\n")
    assert json.loads(process.stdout.readline())["id"] == 1
    interrupt(process)
    errors = process.stderr.read()
    assert process.wait(60) == 130
    assert b"Fatal" not in errors
    assert b"Traceback" not in errors


def interrupt_when(status: str, *arguments: str, variables: Mapping[str, str] | None = None) -> tuple[bytes, str]:
    """Press Ctrl-C when the status line on a terminal says `status`; returns both outputs of the ended command."""
    ours, theirs = pty.openpty()
    process = start(*arguments, stderr=theirs, variables=variables)
    os.close(theirs)
    assert process.stdout is not None
    errors = b""
    while status.encode() not in errors:
        errors += _read(ours)
    interrupt(process)
    output = process.stdout.read()
    while piece := _read(ours):
        errors += piece
    os.close(ours)
    assert process.wait(60) == 130
    return output, errors.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's way to say that the other side is closed
        return b""
