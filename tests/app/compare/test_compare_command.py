"""`octavo compare` through the real command: what it prints, saves and does when it is interrupted or cannot go on."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import app.compare
from app.compare.scenarios import SESSION
from tests.app.command import octavo
from tests.app.test_interrupt import interrupt_when
from tests.tiny_gguf import CHATML, write_tiny

SCHEMA = json.loads((Path(app.compare.__file__).parent / "record.schema.json").read_text())
LANES = [("contiguous", "flash on"), ("contiguous", "flash off"), ("paged", "")]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a token for each letter, so that a session has prompts of some 4,000 tokens."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    return write_tiny(path, tokenizer="gpt2", context=8192, chat_template=CHATML)


def checked(text: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(text)
    Draft202012Validator(SCHEMA).validate(record)
    return record


def test_raw_speed_of_the_starter_model(starter_path: Path) -> None:
    arguments = ("--only", "raw", "--repeat", "1", "--context", "256", "--threads", "1", "--device", "CPU")
    result = octavo("compare", str(starter_path), *arguments, "--json")
    assert result.returncode == 0
    assert result.stderr == ""
    record = checked(result.stdout)
    assert record["is_complete"]
    assert record["errors"] == []
    assert {(s["lane"], s["variant"]) for s in record["raw"]} == set(LANES)
    assert {s["test"] for s in record["raw"]} == {"tg64 @ d0"}
    assert record["model"]["quantization"] == "Q4_1"
    (row,) = record["results"]["raw"]
    contiguous, paged = row["lanes"]
    assert contiguous["ratio"] is None
    assert 0.2 < paged["ratio"]["value"] < 5
    for speed in (*contiguous["variants"], *paged["variants"]):
        assert 1 < speed["tokens_per_s"]["median"] < 10_000


def test_a_session_and_what_it_saves(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    result = octavo("compare", str(tiny), "--only", "session", "--repeat", "1", "--device", "CPU", "--save", str(file))
    assert result.returncode == 0, result.stderr
    assert "A single user's session" in result.stdout
    assert "\x1b" not in result.stdout
    assert list(tmp_path.iterdir()) == [file]
    record = checked(file.read_text())
    assert record["is_complete"]
    assert record["errors"] == []
    assert [row["step"] for row in record["results"]["steps"]] == [step.name for step in SESSION]
    assert record["conclusion"] in " ".join(result.stdout.split())

    paged = {s["step"]: s for s in record["session"] if s["lane"] == "paged"}
    contiguous = {s["step"]: s for s in record["session"] if s["lane"] == "contiguous"}
    assert paged["turn 1"]["computed_tokens"] > 2000
    assert paged["turn 1"]["reused_tokens"] < 16, "what the warm-up begins with too"
    for step, sample in paged.items():
        assert sample["prompt_tokens"] == contiguous[step]["prompt_tokens"]
        assert sample["reused_tokens"] + sample["computed_tokens"] == sample["prompt_tokens"]
        assert sample["user"]["end_s"] >= sample["engine"]["end_s"] >= sample["engine"]["first_s"] > 0
    assert paged["regenerate"]["computed_tokens"] == 1, "a prompt that it has seen to its end"
    # what the other one has overwritten meanwhile
    assert paged["switch back"]["reused_tokens"] > contiguous["switch back"]["reused_tokens"]
    assert paged["quit, come back"]["reused_tokens"] == 0
    assert paged["quit, come back"]["cache_survived"] is False
    assert paged["turn 1"]["memory"]["kv_reserved"] < contiguous["turn 1"]["memory"]["kv_reserved"]
    for difference in record["differences"]:
        assert (difference["gap"] is None) == (None in (difference["token"], difference["reference_token"]))


def test_interrupted_it_tells_what_it_has(tiny: Path, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    arguments = ("--only", "session", "--threads", "1", "--device", "CPU", "--json", "--save", str(file))
    output, errors = interrupt_when("turn 4 with", "compare", str(tiny), *arguments)
    record = checked(output.decode())
    assert checked(file.read_text()) == record
    assert not record["is_complete"]
    assert {sample["step"] for sample in record["session"]} <= {f"turn {i}" for i in range(1, 7)}
    assert len(record["session"]) >= 9
    assert record["results"]["session"][1]["ratio"]["low"] is None
    assert "Traceback" not in errors


def test_interrupted_while_it_loads(tiny: Path) -> None:
    output, errors = interrupt_when("Loading", "compare", str(tiny), "--only", "raw", "--context", "256", "--csv")
    assert output.decode().startswith("part,test,lane")
    assert "Traceback" not in errors


def test_a_lane_that_fails_is_told_and_the_other_is_measured(tiny_model: Callable[..., Path]) -> None:
    """The paged engine has no graph for a model of this kind."""
    model = tiny_model(tokenizer="gpt2", context=512, keys={"logit_scale": 2.0})
    result = octavo("compare", str(model), "--only", "raw", "--repeat", "1", "--context", "128", "--csv")
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert {row["lane"] for row in rows} == {"contiguous"}
    assert result.stderr.startswith("octavo: paged: ")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--lanes", "paged,fast"), 2, "there is no lane fast: choose from contiguous, contiguous+ram, paged"),
        (("--lanes", ","), 2, "Give at least one lane"),
        (("--save", "/nowhere/at/all.json"), 1, "'/nowhere/at/all.json' cannot be written"),
        (("--only", "session", "--context", "512"), 1, "it needs a window of 1,536 tokens, and this one has 512"),
        (("--lanes", "paged-no-lookup", "--only", "raw"), 1, "None of these lanes has anything to measure"),
        (("--endpoint", "ftp://x"), 1, "is no address of a server"),
    ],
)
def test_wishes_that_cannot_be_fulfilled(tiny: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    result = octavo("compare", str(tiny), *arguments)
    assert result.returncode == code
    assert words in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_nothing_can_be_measured(tiny_model: Callable[..., Path]) -> None:
    model = tiny_model(tokenizer="gpt2", context=512, keys={"logit_scale": 2.0})
    result = octavo("compare", str(model), "--only", "raw", "--context", "256", "--lanes", "paged")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "llama.logit_scale" in result.stderr
    assert result.stderr.endswith("octavo: Nothing could be measured, for the reasons above.\n")
