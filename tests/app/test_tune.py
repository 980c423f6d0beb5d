"""`octavo tune`: what it prints, what it leaves for `octavo run`, and what happens when it fails or is interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.tune import as_dict, as_text, chosen_composition
from engine.attention_choice import NEVER, AttentionChoice
from engine.tuning import AttentionTimes, ChunkTimes, DecodeTimes, Speed, Tuning, TuningReport
from tests.app.command import octavo
from tests.app.test_interrupt import interrupt_when

CHOICE = AttentionChoice(unpacked_columns=128, ahead_columns=2048, flash=False)
REPORT = TuningReport(
    tuning=Tuning(2, CHOICE, 256),
    processor="A Processor",
    attention=AttentionTimes(
        (
            DecodeTimes(128, 21.9e-6, 22.1e-6, 24.7e-6),
            DecodeTimes(1024, 95.4e-6, 88.8e-6, 88.1e-6),
            DecodeTimes(2048, 182.2e-6, 159.6e-6, 1127.4e-6),
        ),
        (ChunkTimes(256, 0, 1.4e-3, 1.3e-3), ChunkTimes(256, 1024, 8.1e-3, 8.0e-3)),
    ),
    chunks=(Speed(128, 700.0), Speed(256, 8287.44), Speed(512, 8385.4)),
    chunk_layers=2,
    threads=(),
    thread_layers=21,
    n_layers=30,
    remembered=True,
)
TABLE = """\
model.gguf on A Processor; * is chosen

Attention of one token, µs a layer
    slots read      unpacked        packed    keys ahead
           128        * 21.9          22.1          24.7
         1,024          95.4        * 88.8          88.1
         2,048         182.2         159.6     * 1,127.4

Attention of 256 tokens, µs a layer
  known tokens         flash        packed
             0       1,400.0     * 1,300.0
         1,024       8,100.0     * 8,000.0

Prefill, tokens/s through 2 of 30 layers
 tokens a step      tokens/s
           128         700.0
         * 256       8,287.4
           512       8,385.4

Threads: 2, not measured
"""


def test_the_table() -> None:
    assert as_text(REPORT, "model.gguf") == TABLE


def test_the_object() -> None:
    answer = as_dict(REPORT, "/model.gguf")
    assert answer["settings"] == {
        "threads": 2,
        "chunk_tokens": 256,
        "unpacked_columns": 128,
        "ahead_columns": 2048,
        "flash": False,
    }
    assert [row["chosen"] for row in answer["decode_attention"]] == ["unpacked", "packed", "ahead"]
    assert [row["chosen"] for row in answer["chunk_attention"]] == ["packed", "packed"]
    assert answer["decode_attention"][0] == {
        "columns": 128,
        "unpacked_us": 21.9,
        "packed_us": 22.1,
        "ahead_us": 24.7,
        "chosen": "unpacked",
    }
    assert answer["chunks"]["speeds"][1] == {"chunk_tokens": 256, "tok_s": 8287.4}
    assert answer["threads"] == {"measured_layers": 21, "speeds": []}


def test_the_chosen_composition_is_the_one_that_runs() -> None:
    """At the very sizes where it changes."""
    sizes = (32, 128, 160, 2016, 2048)
    names = ["unpacked", "unpacked", "packed", "packed", "ahead"]
    assert [chosen_composition(CHOICE, n) for n in sizes] == names
    assert chosen_composition(AttentionChoice(0, NEVER), 2**20) == "packed"


def test_the_starter_is_measured_and_remembered(tmp_path: Path) -> None:
    folder = {"OCTAVO_CACHE_DIR": str(tmp_path / "cache")}
    result = octavo("tune", variables=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.startswith("SmolLM2-135M-Instruct")
    assert result.stdout.count("* ") >= 5 + 2 + 1 + 1
    file = tmp_path / "cache" / "tuning.json"
    [(key, settings)] = json.loads(file.read_text())["tunings"].items()
    assert "30 layers" in key
    settings["chunk_tokens"] = 32
    file.write_text(json.dumps({"format": 1, "tunings": {key: settings}}))
    before = file.read_bytes()
    run = octavo("run", "word " * 100, "--raw", "--max-tokens", "1", variables=folder)
    assert run.returncode == 0
    assert file.read_bytes() == before, "run measured again"


def test_json_and_a_place_that_cannot_be_written(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    model = str(tiny_model(tokenizer="gpt2"))
    result = octavo("tune", model, "--json", "--threads", "1", variables={"OCTAVO_CACHE_DIR": str(blocked)})
    assert result.returncode == 0
    answer = json.loads(result.stdout)
    assert answer["model"] == model
    assert answer["settings"]["threads"] == 1
    assert answer["remembered"] is False
    assert all(row["unpacked_us"] > 0 for row in answer["decode_attention"])
    (line,) = result.stderr.splitlines()
    assert "cannot be written" in line


def test_run_measures_a_model_once(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    model, file = str(tiny_model(tokenizer="gpt2")), tmp_path / "tuning.json"
    contents = []
    for _ in range(2):
        result = octavo("run", model, "Hi", "--raw", "--max-tokens", "1", variables={"OCTAVO_CACHE_DIR": str(tmp_path)})
        assert result.returncode == 0
        contents.append(file.read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("name", ["missing.gguf", "other.gguf", "broken.gguf"])
def test_one_sentence_for_what_is_wrong(tiny_model: Callable[..., Path], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "other.gguf":
        path = tiny_model(keys={"logit_scale": 0.5})
    elif name == "broken.gguf":
        path.write_bytes(b"GGUF" + bytes(100))
    result = octavo("tune", str(path))
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("octavo: ")
    assert line.endswith(".")


def test_an_interrupt_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text("{}")
    output, errors = interrupt_when("Measuring", "tune", variables={"OCTAVO_CACHE_DIR": str(tmp_path)})
    assert output == b""
    assert "Traceback" not in errors
    assert file.read_text() == "{}"
    assert list(tmp_path.iterdir()) == [file]
