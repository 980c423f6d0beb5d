"""`octavo pull` against a hub on loopback."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import click
import pytest
from huggingface_hub import constants, hf_hub_download

from app.pull import offer_meant
from engine.gguf_file import GgufFile
from models.catalogue import Catalogue, Origin
from models.fit import Machine
from models.hub.offers import offers_of
from models.hub.reference import HubReference
from models.hub.repository import repository
from models.hub.variants import offered, variants_of
from tests.app.command import interrupt, octavo, octavo_here, start
from tests.app.terminal import on_a_terminal
from tests.hub_server import Hub
from tests.split_gguf import split_gguf
from tests.tiny_gguf import write_tiny


@pytest.fixture
def tiny(hub: Hub, tmp_path: Path) -> dict[str, bytes]:
    """A repository me/Tiny-GGUF with three quantizations of a model that answers."""
    files = {
        f"Tiny-{kind}.gguf": write_tiny(tmp_path / kind, weight_type=kind, tokenizer="gpt2").read_bytes()
        for kind in ("Q4_0", "Q8_0", "F32")
    }
    files["mmproj-Tiny-F16.gguf"] = b"an image encoder"
    hub.add("me/Tiny-GGUF", files, gguf={"total": len(files["Tiny-F32.gguf"]) // 4, "context_length": 256})
    return files


def pulled_names() -> list[str]:
    return [model.name for model in Catalogue().models() if model.origin is Origin.PULLED]


def one_sentence(*arguments: str, variables: Mapping[str, str] | None = None) -> str:
    """The sentence of a pull that fails."""
    result = octavo_here("pull", *arguments, variables=variables)
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert pulled_names() == []
    return line


def test_without_a_terminal_it_takes_the_recommended_one(hub: Hub, tiny: dict[str, bytes]) -> None:
    result = octavo("pull", "me/Tiny-GGUF")
    assert result.returncode == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    rows = [line for line in lines if line and line[0].isdecimal()]
    assert [row[1] for row in rows] == ["Q4_0", "Q8_0", "F32"]
    assert [row[-1] for row in rows] == ["memory", "recommended", "memory"]
    assert "256 tokens of context" in result.stdout
    assert "Downloading Tiny-Q8_0.gguf" in result.stderr
    assert "of disk are free" in result.stderr

    (model,) = [model for model in Catalogue().models() if model.origin is Origin.PULLED]
    assert (model.name, model.source) == ("Tiny-Q8_0", "me/Tiny-GGUF:Q8_0")
    assert model.path.read_bytes() == tiny["Tiny-Q8_0.gguf"]
    assert Path(os.environ["HF_HOME"]) in model.path.parents
    assert 'octavo run Tiny-Q8_0 "' in result.stdout

    answer = octavo("run", "Tiny-Q8_0", "ab", "--raw", "--max-tokens", "2", "--json")
    assert json.loads(answer.stdout)["generated_tokens"] == 2


def test_a_model_that_is_there_is_not_fetched_again(hub: Hub, tiny: dict[str, bytes]) -> None:
    assert octavo_here("pull", "me/Tiny-GGUF:q8_0").returncode == 0
    hub.forget_requests()
    result = octavo_here("pull", "hf.co/me/Tiny-GGUF/resolve/main/Tiny-Q8_0.gguf")
    assert result.returncode == 0
    assert "Tiny-Q8_0 is already here" in result.stdout
    assert [request.path for request in hub.requests] == ["/api/models/me/Tiny-GGUF"]


def test_a_changed_file_is_pulled_and_keeps_its_name(hub: Hub, tiny: dict[str, bytes], tmp_path: Path) -> None:
    assert octavo_here("pull", "me/Tiny-GGUF:Q8_0").returncode == 0
    changed = write_tiny(tmp_path / "new", weight_type="Q8_0", tokenizer="gpt2", seed=5).read_bytes()
    hub.add("me/Tiny-GGUF", tiny | {"Tiny-Q8_0.gguf": changed})
    result = octavo_here("pull", "me/Tiny-GGUF:Q8_0", "--json")
    answer = json.loads(result.stdout)
    assert (answer["name"], answer["downloaded"], answer["bytes"]) == ("Tiny-Q8_0", True, len(changed))
    assert "another version of 'Tiny-Q8_0'" in result.stderr
    assert "The earlier version is still" in result.stderr
    assert pulled_names() == ["Tiny-Q8_0"]
    assert Path(answer["files"][0]).read_bytes() == changed


def test_a_change_elsewhere_in_the_repository_is_none(hub: Hub, tiny: dict[str, bytes]) -> None:
    assert octavo_here("pull", "me/Tiny-GGUF:Q8_0").returncode == 0
    hub.add("me/Tiny-GGUF", tiny | {"README.md": b"Hello."})
    assert "already here" in octavo_here("pull", "me/Tiny-GGUF:Q8_0").stdout


def test_a_file_that_has_gone_is_fetched_again(hub: Hub, tiny: dict[str, bytes]) -> None:
    first = json.loads(octavo_here("pull", "me/Tiny-GGUF:Q8_0", "--json").stdout)
    blob = Path(first["files"][0]).resolve()
    blob.unlink()
    result = octavo_here("pull", "me/Tiny-GGUF:Q8_0", "--json")
    assert json.loads(result.stdout) == first
    assert blob.is_file()
    assert "version" not in result.stderr


def test_what_another_program_has_fetched_is_neither_fetched_nor_copied(hub: Hub, tiny: dict[str, bytes]) -> None:
    path = hf_hub_download("me/Tiny-GGUF", "Tiny-Q4_0.gguf")
    hub.forget_requests()
    result = octavo_here("pull", "me/Tiny-GGUF:Q4_0", "--json")
    assert json.loads(result.stdout) == {
        "name": "Tiny-Q4_0",
        "source": "me/Tiny-GGUF:Q4_0",
        "files": [path],
        "bytes": len(tiny["Tiny-Q4_0.gguf"]),
        "downloaded": False,
    }
    assert hub.downloads("Tiny-Q4_0.gguf") == []


def test_a_list_fetches_nothing(hub: Hub, tiny: dict[str, bytes]) -> None:
    octavo_here("pull", "me/Tiny-GGUF:Q4_0")
    text = octavo_here("pull", "me/Tiny-GGUF", "--list")
    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.startswith("me/Tiny-GGUF, ")
    (row,) = (line for line in text.stdout.splitlines() if "Q4_0" in line)
    assert row.endswith("installed")
    listing = json.loads(octavo_here("pull", "me/Tiny-GGUF", "--list", "--json", "--context", "1000").stdout)
    assert listing["context"] == 1000
    assert [(one["name"], one["files"], one["recommended"]) for one in listing["variants"]] == [
        ("Q4_0", ["Tiny-Q4_0.gguf"], False),
        ("Q8_0", ["Tiny-Q8_0.gguf"], True),
        ("F32", ["Tiny-F32.gguf"], False),
    ]
    assert listing["variants"][2]["bits_per_weight"] == pytest.approx(32, abs=0.01)
    assert pulled_names() == ["Tiny-Q4_0"]


def test_all_shards_of_a_split_model(hub: Hub, tmp_path: Path) -> None:
    whole = write_tiny(tmp_path / "whole.gguf", tokenizer="gpt2")
    shards = split_gguf(whole, 10)
    names = [f"BF16/Tiny-BF16-0000{number}-of-0000{len(shards)}.gguf" for number in range(1, len(shards) + 1)]
    hub.add("me/Tiny", dict(zip(names, shards, strict=True)))
    result = octavo_here("pull", "me/Tiny", "--yes")
    assert f"in {len(shards)} files" in result.stderr
    (model,) = [model for model in Catalogue().models() if model.origin is Origin.PULLED]
    assert (model.name, model.source) == ("Tiny-BF16", "me/Tiny:BF16")
    assert [file.read_bytes() for file in model.files] == [shard.read_bytes() for shard in shards]
    assert GgufFile.open(model.path).paths == model.files


def test_a_revision(hub: Hub, tiny: dict[str, bytes]) -> None:
    hub.add("me/Tiny-GGUF", {"Tiny-Q4_0.gguf": tiny["Tiny-F32.gguf"]}, revision="v1")
    octavo_here("pull", "me/Tiny-GGUF:Q4_0")
    result = octavo_here("pull", "me/Tiny-GGUF", "--revision", "v1", "--json")
    answer = json.loads(result.stdout)
    assert (answer["source"], answer["bytes"]) == ("me/Tiny-GGUF@v1:Q4_0", len(tiny["Tiny-F32.gguf"]))
    assert pulled_names() == ["Tiny-Q4_0", "Tiny-Q4_0-2"]


def test_more_than_the_memory_holds_is_said_and_done(hub: Hub, tiny: dict[str, bytes]) -> None:
    result = octavo_here("pull", "me/Tiny-GGUF:Q4_0", "--context", str(2**31 - 1))
    assert result.returncode == 0
    assert "too large" in result.stderr
    assert pulled_names() == ["Tiny-Q4_0"]


def test_quantizations_that_are_not_there(hub: Hub, tiny: dict[str, bytes]) -> None:
    assert one_sentence("me/Tiny-GGUF:Q5_K_M").endswith("There is no 'Q5_K_M' in me/Tiny-GGUF, only Q4_0, Q8_0, F32.")


def test_repositories_without_gguf(hub: Hub) -> None:
    hub.add("me/Weights", {"model.safetensors": b"x", "config.json": b"{}"})
    hub.add("me/Nothing", {"README.md": b"x"})
    assert "'octavo quantize me/Weights Q4_K_M'" in one_sentence("me/Weights")
    assert "octavo search" in one_sentence("me/Nothing")


@pytest.mark.parametrize(
    ("arguments", "variables", "sentence"),
    [
        (["me/Gated-GGUF"], {}, "/me/Gated-GGUF"),
        (["me/None-GGUF"], {}, "no repository 'me/None-GGUF'"),
        (["me/Gated-GGUF"], {"HF_TOKEN": "hf_wrong"}, "does not accept your token"),
        (["me/Gated-GGUF", "--revision", "v9"], {}, "no such branch"),
        (["llama3"], {}, "does not name a model on the hub"),
    ],
)
def test_one_sentence_for_what_the_hub_refuses(
    hub: Hub, arguments: list[str], variables: dict[str, str], sentence: str
) -> None:
    hub.add("me/Gated-GGUF", {"m-Q4_0.gguf": b"x"}, gated="manual")
    assert sentence in one_sentence(*arguments, variables=variables)


def test_offline(hub: Hub, tiny: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in a process of its own, as huggingface_hub reads the variable when it is imported."""
    assert octavo_here("pull", "me/Tiny-GGUF:Q8_0").returncode == 0
    Catalogue().remove("Tiny-Q8_0")
    hub.forget_requests()
    result = octavo("pull", "me/Tiny-GGUF:Q8_0", variables={"HF_HUB_OFFLINE": "1"})
    assert (result.returncode, result.stderr) == (0, "")
    assert pulled_names() == ["Tiny-Q8_0"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "already here" in octavo_here("pull", "me/Tiny-GGUF").stdout
    Catalogue().remove("Tiny-Q8_0")
    assert "HF_HUB_OFFLINE" in one_sentence("me/Tiny-GGUF:Q4_0")
    assert "HF_HUB_OFFLINE" in one_sentence("me/Other-GGUF")
    assert hub.requests == []


def test_what_is_no_gguf_is_not_entered(hub: Hub) -> None:
    hub.add("me/Broken-GGUF", {"m-Q4_0.gguf": b"<html>Not found</html>"})
    result = octavo_here("pull", "me/Broken-GGUF")
    assert result.returncode == 1
    assert "is not a GGUF file" in result.stderr
    assert pulled_names() == []


def test_names_from_the_hub_are_shown_safely(hub: Hub, tiny: dict[str, bytes]) -> None:
    files = {"\x1b[31mred.gguf": tiny["Tiny-Q4_0.gguf"], "a\nb-Q8_0.gguf": tiny["Tiny-Q8_0.gguf"]}
    hub.add("me/Evil-GGUF", files)
    listing = octavo_here("pull", "me/Evil-GGUF", "--list")
    assert "␛[31mred" in listing.stdout
    result = octavo_here("pull", "me/Evil-GGUF:\x1b[31mred.gguf")
    assert result.returncode == 0
    assert "\x1b" not in listing.stdout + result.stdout + result.stderr
    (line,) = octavo_here("pull", "me/Evil-GGUF:Q8_0").stderr.splitlines()
    assert "Downloading a␊b-Q8_0.gguf: " in line
    assert pulled_names() == ["31mred", "Evil-Q8_0"]


def test_ctrl_c_and_again(hub: Hub, tiny: dict[str, bytes]) -> None:
    hub.fail("Tiny-F32.gguf", stall_at=200_000, times=None)
    process = start("pull", "me/Tiny-GGUF:F32")
    assert process.stderr is not None
    while _partial_bytes() < 200_000:
        assert process.poll() is None
        time.sleep(0.02)
    interrupt(process)
    errors = process.stderr.read().decode()
    assert process.wait(60) == 130
    assert "goes on where this one was" in errors
    assert "Traceback" not in errors
    assert pulled_names() == []
    hub.end_stalls()
    hub.mend()
    hub.forget_requests()
    assert octavo_here("pull", "me/Tiny-GGUF:F32").returncode == 0
    assert hub.downloads("Tiny-F32.gguf")[-1].range == "bytes=200000-"
    assert pulled_names() == ["Tiny-F32"]


def _partial_bytes() -> int:
    blobs = Path(os.environ["HF_HOME"]) / "hub" / "models--me--Tiny-GGUF" / "blobs"
    return max((path.stat().st_size for path in blobs.glob("*")), default=0)


@pytest.mark.parametrize(("answers", "name"), [([""], "Tiny-Q8_0"), (["4", "Q5_0", "3"], "Tiny-F32")])
def test_the_choice_on_a_terminal(hub: Hub, tiny: dict[str, bytes], answers: list[str], name: str) -> None:
    screen, code = on_a_terminal(["pull", "me/Tiny-GGUF"], "Which one?", answers)
    assert code == 0
    assert screen.count("Which one?") == len(answers)
    assert screen.count("a number from 1 to 3") == len(answers) - 1
    assert pulled_names() == [name]


@pytest.mark.parametrize(
    ("answer", "name"),
    [("", "Q8_0"), ("1", "Q4_0"), ("3", "F32"), ("f32", "F32"), ("Tiny-Q4_0.gguf", "Q4_0"), ("0", None), ("4", None)],
)
def test_what_an_answer_means(hub: Hub, tiny: dict[str, bytes], answer: str, name: str | None) -> None:
    remote = repository(HubReference("me/Tiny-GGUF"))
    variants = offered(variants_of(remote.files))
    offers = offers_of(remote, variants, None, Machine(2**40, 0))
    if name:
        assert offer_meant(answer, offers).variant.name == name
    else:
        with pytest.raises(click.UsageError, match="a number from 1 to 3"):
            offer_meant(answer, offers)


def test_ctrl_c_at_the_choice(hub: Hub, tiny: dict[str, bytes]) -> None:
    """The shell's prompt comes on a line of its own."""
    screen, code = on_a_terminal(["pull", "me/Tiny-GGUF"], "Which one?", ["\x03"])
    assert code == 130
    assert screen.endswith("^C\r\n\r\n")  # after Enter, one of ours
    assert "Traceback" not in screen
    assert pulled_names() == []
