"""What a user can get wrong: one clear sentence on standard error, the right exit code, no traceback."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.app.command import octavo

LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"


def sentence(*arguments: str, stdin: str | bytes = b"", data: Path | None = None) -> str:
    """The one line that a failing command says."""
    result = octavo(*arguments, stdin=stdin, variables={"OCTAVO_DATA_DIR": str(data)} if data else None)
    assert result.stdout == ""
    assert result.returncode == 1, result.stderr
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: ")
    assert line.endswith(".")
    return line


def complaint(*arguments: str) -> str:
    """What click says about a wrong command line."""
    result = octavo(*arguments)
    assert result.stdout == ""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize("prompt", ["", "  \n\t "])
def test_empty_prompt(prompt: str) -> None:
    assert "empty" in sentence("run", prompt)
    assert "empty" in sentence("run", "--raw", "-", stdin=prompt)


def test_prompt_that_is_not_utf8() -> None:
    assert "UTF-8" in sentence("run", "-", stdin=b"caf\xe9")


def test_a_prompt_without_end() -> None:
    assert "longer than 64.0 MiB" in sentence("run", "-", stdin=bytes(64 * 2**20 + 1))


def test_missing_model_says_what_is_installed(tmp_path: Path) -> None:
    line = sentence("run", "nowhere", "Hi", data=tmp_path)
    assert line.endswith("installed are 'SmolLM2-135M-Instruct.Q4_1'; a prompt of several words goes in quotes.")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "tiny.gguf").touch()
    assert "'tiny'" in sentence("run", "/nowhere/model.gguf", "Hi", data=tmp_path)


def test_control_characters_in_a_name_are_shown_not_obeyed(tmp_path: Path) -> None:
    assert "\x1b" not in sentence("run", "\x1b[31mmodel", "Hi", data=tmp_path)


def test_a_name_too_long_for_any_file() -> None:
    assert "no model file" in sentence("run", "x" * 5000, "Hi")


def test_directory(tmp_path: Path) -> None:
    assert "folder" in sentence("run", str(tmp_path), "Hi")


def test_git_lfs_pointer(tmp_path: Path) -> None:
    path = tmp_path / "pointer.gguf"
    path.write_text(LFS_POINTER)
    assert "LFS" in sentence("run", str(path), "Hi")


def test_wrong_magic(tmp_path: Path) -> None:
    path = tmp_path / "picture.gguf"
    path.write_bytes(b"\x89PNG" + bytes(5000))
    assert "GGUF" in sentence("run", str(path), "Hi")


def test_truncated_gguf(tmp_path: Path, starter_path: Path) -> None:
    path = tmp_path / "half.gguf"
    with starter_path.open("rb") as whole:
        path.write_bytes(whole.read(starter_path.stat().st_size // 2))
    assert str(path) in sentence("run", str(path), "Hi")


def test_prompt_longer_than_the_context_says_by_how_much() -> None:
    line = sentence("run", "word " * 200, "--raw", "--context", "100")
    assert "more than fit" in line


def test_context_beyond_memory_says_what_would_fit() -> None:
    assert re.search(r"use --context \d+ or less", sentence("run", "Hi", "--context", "2000000000"))


def test_unknown_device() -> None:
    """Found out after a prompt that is no model, but looks much like one, and is longer than any name of a file."""
    assert "'abacus'" in sentence("run", "x" * 5000 + ".gguf", "--device", "abacus")


def test_a_variable_that_huggingface_hub_cannot_read() -> None:
    result = octavo("search", "x", variables={"HF_HUB_DOWNLOAD_TIMEOUT": "soon"})
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: huggingface_hub does not understand its variables (invalid literal for int()")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--temperature", "warm"),
        ("--top-k", "-1"),
        ("--top-p", "1.5"),
        ("--top-p", "0"),
        ("--min-p", "-0.1"),
        ("--repeat-penalty", "0"),
        ("--seed", "-1"),
        ("--seed", "4294967295"),
        ("--max-tokens", "0"),
        ("--stop", ""),
        ("-n", "0"),
        ("-n", "1000000"),
        ("--context", "0"),
        ("--context", "99999999999999999999"),
        ("--threads", "0"),
        ("--engine", "steam"),
        ("--kv-type", "q4_0"),
        ("--kv-type", ""),
        ("--batch", "/nowhere/prompts.jsonl"),
    ],
)
def test_nonsense_values_are_usage_errors(option: str, value: str) -> None:
    """In one process: click decides before anything is started."""
    from click.testing import CliRunner

    from app.cli import octavo as command

    result = CliRunner().invoke(command, ["run", "Hi", option, value])
    assert result.exit_code == 2
    assert option in result.output


def test_a_model_whose_heads_q8_0_cannot_store(tiny_model: Callable[..., Path]) -> None:
    line = sentence("run", str(tiny_model(tokenizer="gpt2")), "Hi", "--raw", "--kv-type", "q8_0")
    assert "16 values" in line
    assert "--kv-type f16" in line


def test_wrong_command_lines() -> None:
    assert "PROMPT" in complaint("run")
    assert "quotes" in complaint("run", "Why", "is", "it")
    assert "system" in complaint("run", "Hi", "--raw", "--system", "Be brief.")
    assert "--temperature" in complaint("run", "Hi", "--temperature", "nan")


def test_a_model_without_a_prompt_is_not_taken_for_the_prompt(starter_path: Path) -> None:
    assert "PROMPT" in complaint("run", str(starter_path))
