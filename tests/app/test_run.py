"""`octavo run` with the starter model: what comes out on which stream, and with which exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.app.command import COUNTING, ENDLESS, ROOT, environment, octavo, start

KEYS = {
    "token_ids",
    "prompt_tokens",
    "reused_tokens",
    "computed_tokens",
    "generated_tokens",
    "drafted_tokens",
    "accepted_tokens",
    "ttft_s",
    "prefill_tok_s",
    "decode_tok_s",
    "finish_reason",
    "engine",
    "model",
    "kv",
}
KV_KEYS = {
    "block_size",
    "blocks_used",
    "bytes_used",
    "bytes_resident",
    "bytes_contiguous_would_reserve",
    "type_k",
    "type_v",
}


def test_the_answer_and_nothing_else_goes_to_standard_output() -> None:
    result = octavo("run", *ENDLESS, "--max-tokens", "12")
    assert result.returncode == 0
    assert result.stdout == " 13 14 15 16\n"
    assert "12 tokens" in result.stderr.splitlines()[-1]
    assert "tok/s" in result.stderr
    assert "\x1b" not in result.stdout + result.stderr


def test_json_has_exactly_the_documented_keys(starter_path: Path) -> None:
    result = octavo("run", str(starter_path), *ENDLESS, "--max-tokens", "12", "--json")
    assert result.returncode == 0
    answer = json.loads(result.stdout)
    assert set(answer) == KEYS | {"text"}
    assert set(answer["kv"]) == KV_KEYS
    assert answer["text"] == " 13 14 15 16"
    assert len(answer["token_ids"]) == answer["generated_tokens"] == 12
    assert answer["reused_tokens"] + answer["computed_tokens"] == answer["prompt_tokens"]
    assert answer["finish_reason"] == "length"
    assert answer["engine"] == "paged"
    assert answer["model"] == str(starter_path)
    assert answer["ttft_s"] > 0
    assert answer["prefill_tok_s"] > 0
    assert answer["decode_tok_s"] > 0
    assert 0 < answer["kv"]["bytes_used"] <= answer["kv"]["bytes_contiguous_would_reserve"]
    assert (answer["kv"]["type_k"], answer["kv"]["type_v"]) == ("f16", "f16")
    assert result.stderr == ""


def test_keys_in_q8_0_are_said_and_take_less() -> None:
    result = octavo("run", *ENDLESS, "--max-tokens", "12", "--json", "--kv-type", "q8_0", "--device", "CPU")
    answer = json.loads(result.stdout)
    assert answer["text"] == " 13 14 15 16"
    assert (answer["kv"]["type_k"], answer["kv"]["type_v"]) == ("q8_0", "f16")
    assert answer["kv"]["bytes_used"] == answer["kv"]["blocks_used"] * 16 * 30 * 3 * (68 + 128)
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: Keys are stored as q8_0, values as f16: ")


def test_several_answers_as_json_are_lists() -> None:
    result = octavo("run", "Name a colour.", "-n", "3", "--max-tokens", "4", "--seed", "7", "--json")
    answer = json.loads(result.stdout)
    assert set(answer) == KEYS | {"texts"}
    assert len(answer["texts"]) == len(answer["token_ids"]) == len(answer["finish_reason"]) == 3
    assert answer["generated_tokens"] == sum(map(len, answer["token_ids"]))
    # One prompt, computed once: a sibling repeats its last token at most.
    assert answer["reused_tokens"] + answer["computed_tokens"] <= answer["prompt_tokens"] + 2


def test_several_answers_as_text_come_in_order_under_headings() -> None:
    result = octavo("run", *ENDLESS, "--max-tokens", "6", "-n", "2")
    assert result.stdout == "[1 of 2]\n 13 14\n[2 of 2]\n 13 14\n"


def test_a_prompt_from_standard_input() -> None:
    result = octavo("run", "-", *ENDLESS[1:], "--max-tokens", "3", stdin=COUNTING + "\n")
    assert (result.returncode, result.stdout) == (0, " 13\n")


def test_a_stop_string_ends_the_answer_before_it() -> None:
    result = octavo("run", *ENDLESS, "--json", "--stop", "99", "--stop", "15 1")
    answer = json.loads(result.stdout)
    assert answer["text"] == " 13 14 "
    assert answer["finish_reason"] == "stop"


def test_the_system_message_is_part_of_the_prompt() -> None:
    result = octavo("run", "Hi", "--system", "talk like a pirate " * 20, "--max-tokens", "1", "--json")
    assert json.loads(result.stdout)["prompt_tokens"] > 80


def test_control_characters_of_a_model_do_not_reach_the_terminal(tiny_model: Callable[..., Path]) -> None:
    """The model's output matrix leaves it the choice between two control characters."""
    output = np.zeros((272, 64))
    output[188 + 0x1B], output[188 + 0x07] = 1, -1  # the tokens of ESC and BEL: one of them is above 0
    model = tiny_model(tokenizer="gpt2", tensors={"output.weight": output})
    arguments = ("run", str(model), "a", "--raw", "--temperature", "0", "--max-tokens", "8")
    text = octavo(*arguments).stdout
    assert len(text) == 8 + len("\n")
    assert set(text) <= {"␛", "␇", "\n"}
    line = octavo(*arguments, "--json").stdout
    assert set(json.loads(line)["text"]) <= {"\x1b", "\x07"}
    assert line.removesuffix("\n").isprintable()


def test_a_reader_that_stops_reading_ends_it_quietly() -> None:
    process = start("run", *ENDLESS)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(1)
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 1
    assert b"Traceback" not in errors
    assert b"Exception" not in errors


def test_a_full_disk_is_one_sentence() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    with full.open("wb") as disk:
        result = subprocess.run(
            [sys.executable, "-m", "app", "run", *ENDLESS],
            stdout=disk,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(),
            timeout=120,
            check=False,
        )
    assert result.returncode == 1
    assert b"cannot be written" in result.stderr
    assert b"Traceback" not in result.stderr
    assert b"Exception" not in result.stderr


@pytest.mark.parametrize(
    ("redirections", "code", "output", "errors"),
    [
        (">&-", 1, "", "octavo: The answer cannot be written: standard output is closed.\n"),
        ("<&- >&- 2>&-", 1, "", ""),
        ("<&- 2>&-", 0, " 13\n", ""),
        ("2>/dev/full", 0, " 13\n", ""),
        ("--help >/dev/full", 1, "", "octavo: The system refused a request: No space left on device.\n"),
        ("--context 0 2>/dev/full", 2, "", ""),
    ],
)
def test_standard_files_that_are_closed_or_full(redirections: str, code: int, output: str, errors: str) -> None:
    if "/dev/full" in redirections and not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    arguments = shlex.join([sys.executable, "-m", "app", "run", *ENDLESS, "--max-tokens", "3"])
    result = subprocess.run(
        f"{arguments} {redirections}",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (code, output, errors)


def test_what_native_code_prints_stays_out_of_the_answer(tmp_path: Path) -> None:
    """The engine's process really writes to its descriptor 1 here, as a chatty library would."""
    noise = "import os, sys\nif 'engine.worker' in ' '.join(sys.orig_argv): os.write(1, b'noise\\n')\n"
    (tmp_path / "sitecustomize.py").write_text(noise)
    result = octavo("run", *ENDLESS, "--max-tokens", "3", variables={"PYTHONPATH": str(tmp_path)})
    assert (result.returncode, result.stdout) == (0, " 13\n")
    assert "noise" not in result.stderr


def test_a_folder_called_engine_next_to_the_user_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").write_text("raise SystemExit('wrong engine')")
    installed_command = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from app.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-P", "-c", installed_command, "run", *ENDLESS, "--max-tokens", "3"],
        capture_output=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout) == (0, b" 13\n")
