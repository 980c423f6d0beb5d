"""`octavo run --batch`: every line gets one result, whatever is wrong with the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.batch import LONGEST_LINE
from app.batch_lines import LineError, parse_line
from app.options import REQUEST_OPTIONS
from engine.messages import ChatMessage, TextRequest
from tests.app.command import COUNTING, octavo

DEFAULTS: dict[str, Any] = {
    str(option.name): option.default if isinstance(option.default, int | float) else None for option in REQUEST_OPTIONS
} | {"stop": ()}


def test_six_prompts_and_their_results(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines: list[dict[str, Any]] = [
        {"prompt": COUNTING, "raw": True},
        {"id": "short", "prompt": COUNTING, "raw": True, "max_tokens": 3},
        {"id": {"any": ["json"]}, "prompt": "Name a colour.", "n": 2},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]},
        {"prompt": "Name a fruit.", "system": "Be brief.", "temperature": 1.5, "seed": 3, "stop": ["\n", "."]},
        {"prompt": COUNTING, "raw": True, "stop": " 14"},
    ]
    file.write_text("\n\n".join(map(json.dumps, lines)))
    result = octavo("run", "--batch", str(file), "--temperature", "0", "--max-tokens", "6")
    assert result.returncode == 0
    results = {json.dumps(answer["id"]): answer for answer in map(json.loads, result.stdout.splitlines())}
    assert set(results) == {"1", '"short"', '{"any": ["json"]}', "7", "9", "11"}
    assert results["1"]["text"] == " 13 14"
    assert results['"short"']["text"] == " 13"
    assert len(results['{"any": ["json"]}']["texts"]) == 2
    assert results["11"]["text"] == " 13"
    assert results["11"]["finish_reason"] == "stop"
    assert "6 answered, 0 failed" in result.stderr


def test_a_bad_line_gets_an_error_and_the_others_their_answers() -> None:
    lines = [
        '{"id": "good", "prompt": "1 2 3", "raw": true}',
        "not json",
        '{"id": "long", "prompt": "%s"}' % ("word " * 500),
    ]
    result = octavo("run", "--batch", "-", "--max-tokens", "2", "--context", "256", stdin="\n".join(lines))
    assert result.returncode == 1
    answers = {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}
    assert set(answers) == {"good", 2, "long"}
    assert set(answers[2]) == {"id", "error"}
    assert "JSON" in answers[2]["error"]
    assert "more than fit" in answers["long"]["error"]
    assert answers["good"]["generated_tokens"] == 2
    assert "1 answered, 2 failed" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_line_without_end_loses_no_answer(tiny_model: Callable[..., Path]) -> None:
    lines = b'{"prompt": "hello", "max_tokens": 2}\n' + bytes(LONGEST_LINE + 1)
    result = octavo("run", str(tiny_model(tokenizer="gpt2")), "--batch", "-", "--raw", stdin=lines)
    assert result.returncode == 1
    assert json.loads(result.stdout)["generated_tokens"] == 2
    assert result.stderr.splitlines()[-1].startswith("octavo: Line 2 of the batch file is longer than 64.0 MiB")


def test_options_of_a_line_win_over_the_command_line() -> None:
    line = {"prompt": "Hi", "temperature": 0, "top_k": 5, "stop": "x", "n": 2, "max_tokens": 9}
    parsed = parse_line(1, json.dumps(line).encode(), {**DEFAULTS, "temperature": 1.0, "system": "Be brief."})
    assert isinstance(parsed.request, TextRequest)
    assert parsed.request.prompt == (ChatMessage("system", "Be brief."), ChatMessage("user", "Hi"))
    assert parsed.request.sampling.temperature == 0
    assert parsed.request.sampling.top_k == 5
    assert parsed.request.sampling.min_p == 0.05
    assert (parsed.request.stop, parsed.request.n, parsed.request.max_tokens) == (("x",), 2, 9)


def test_a_system_message_of_the_line_wins_over_the_command_line() -> None:
    messages = [{"role": "system", "content": "Be long."}, {"role": "user", "content": "Hi"}]
    parsed = parse_line(1, json.dumps({"messages": messages}).encode(), {**DEFAULTS, "system": "Be brief."})
    assert isinstance(parsed.request, TextRequest)
    assert parsed.request.prompt == (ChatMessage("system", "Be long."), ChatMessage("user", "Hi"))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"[]", "not a JSON object"),
        (b'{"prompt": "x"', "column"),
        (b'{"prompt": "caf\xe9"}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"prompt": "x", "seed": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"{}", "either a prompt or messages"),
        (b'{"prompt": "x", "messages": []}', "either a prompt or messages"),
        (b'{"prompt": 5}', "not a string"),
        (b'{"prompt": "\\ud800"}', "Unicode"),
        (b'{"prompt": " "}', "empty"),
        (b'{"messages": []}', "empty"),
        (b'{"messages": "x"}', "not a list"),
        (b'{"messages": [{"role": "user"}]}', "strings role and content"),
        (b'{"messages": [{"role": "user", "content": "x", "name": "y"}]}', "strings role and content"),
        (b'{"messages": [{"role": "boss", "content": "x"}]}', "'boss'"),
        (b'{"messages": [{"role": "user", "content": "x"}], "raw": true}', "raw"),
        (b'{"prompt": "x", "raw": true, "system": "y"}', "raw"),
        (b'{"prompt": "x", "temprature": 1}', "'temprature' is unknown"),
        (b'{"prompt": "x", "context": 100}', "on the command line"),
        (b'{"prompt": "x", "temperature": NaN}', "--temperature"),
        (b'{"prompt": "x", "temperature": "0.5"}', "'temperature' is not a number"),
        (b'{"prompt": "x", "max_tokens": 2.5}', "--max-tokens"),
        (b'{"prompt": "x", "max_tokens": true}', "'max_tokens' is not a number"),
        (b'{"prompt": "x", "n": 0}', "-n"),
        (b'{"prompt": "x", "raw": 1}', "'raw' is not true or false"),
        (b'{"prompt": "x", "stop": [5]}', "'stop' is not a string"),
        (b'{"prompt": "x", "stop": ""}', "--stop"),
    ],
)
def test_what_is_wrong_with_a_line(line: bytes, complaint: str) -> None:
    parsed = parse_line(7, line, DEFAULTS)
    assert parsed.id == 7
    assert isinstance(parsed.request, Exception)
    assert complaint in str(parsed.request)
    assert str(parsed.request).endswith(".")


def test_the_id_of_a_bad_line_is_kept() -> None:
    parsed = parse_line(7, b'{"id": "mine", "prompt": 5}', DEFAULTS)
    assert parsed.id == "mine"
    assert isinstance(parsed.request, LineError)
