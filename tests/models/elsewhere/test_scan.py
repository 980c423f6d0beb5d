"""Models that other programs hold, in folders as these write them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from huggingface_hub import constants

from models.catalogue import Catalogue, Origin
from models.elsewhere.ollama_store import ollama_stores
from models.elsewhere.other_programs import all_holdings
from models.elsewhere.scan import Findings, FoundModel, scan
from models.importing import candidate_of, install
from tests.tiny_gguf import write_tiny

MODEL, PROJECTOR = "application/vnd.ollama.image.model", "application/vnd.ollama.image.projector"
LIST = "application/vnd.ollama.manifest.list.v2+json"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without any program."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("LLAMA_CACHE", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OLLAMA_MODELS", str(home / ".ollama" / "models"))
    monkeypatch.setenv("OCTAVO_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / ".cache" / "huggingface" / "hub"))
    return home


def look() -> Findings:
    unreadable: list[Path] = []
    return scan(all_holdings(unreadable), unreadable, Catalogue())


def only() -> FoundModel:
    findings = look()
    assert findings.unreadable == ()
    (found,) = findings.models
    return found


def tiny(path: Path, seed: int = 0, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_tiny(path, seed=seed, **options)


def blob(store: Path, seed: int = 0, **options: Any) -> str:
    """A file under its hash, in a store of Ollama; returns the digest."""
    file = tiny(store / "blobs" / "new", seed, **options)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.rename(store / "blobs" / f"sha256-{digest}")
    return f"sha256:{digest}"


def manifest(*layers: tuple[str, str]) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + "0" * 64},
        "layers": [{"mediaType": kind, "digest": digest, "size": 1} for kind, digest in layers],
    }


def write_manifest(store: Path, name: str, content: Mapping[str, Any] | str, folder: str = "manifests") -> Path:
    path = store / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_nothing_is_there(home: Path) -> None:
    assert look() == ((), ())


@pytest.mark.parametrize(
    ("path", "label", "name"),
    [
        ("registry.ollama.ai/library/llama3.2/1b", "llama3.2:1b", "llama3.2-1b"),
        ("registry.ollama.ai/library/mistral/latest", "mistral:latest", "mistral"),
        ("registry.ollama.ai/someone/mine/q4", "someone/mine:q4", "mine-q4"),
        ("hf.co/owner/Qwen3-4B-GGUF/Q4_K_M", "hf.co/owner/Qwen3-4B-GGUF:Q4_K_M", "Qwen3-4B-Q4_K_M"),
    ],
)
def test_ollama(home: Path, path: str, label: str, name: str) -> None:
    store = home / ".ollama" / "models"
    digest = blob(store)
    write_manifest(store, path, manifest(("application/vnd.ollama.image.license", digest), (MODEL, digest)))
    found = only()
    assert (found.programs, found.labels) == (("Ollama",), (label,))
    assert found.candidate.name == name
    assert found.candidate.files == (store / "blobs" / digest.replace(":", "-"),)
    assert found.candidate.origin is Origin.LINKED
    assert found.n_bytes == os.path.getsize(found.candidate.files[0])


def test_ollama_two_tags_of_one_file(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = tmp_path / "elsewhere"
    monkeypatch.setenv("OLLAMA_MODELS", str(store))
    digest = blob(store)
    for tag in ("latest", "tiny"):
        write_manifest(store, f"registry.ollama.ai/library/model/{tag}", manifest((MODEL, digest)))
    found = only()
    assert found.labels == ("model:tiny", "model:latest")
    assert found.candidate.name == "model-tiny"


def test_ollama_where_it_is_not_moved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_MODELS")
    own, *of_service = ollama_stores()
    assert own == home / ".ollama" / "models"
    assert Path("/usr/share/ollama/.ollama/models") in of_service


def test_ollama_lists_of_manifests(home: Path) -> None:
    """The newer layout: a named manifest is a link to a blob, and may have one manifest for each engine."""
    store = home / ".ollama" / "models"
    inline, by_digest = blob(store, 1), blob(store, 2)
    reference = json.dumps(manifest((MODEL, by_digest)))
    digest = hashlib.sha256(reference.encode()).hexdigest()
    (store / "blobs" / f"sha256-{digest}").write_text(reference)
    safetensors = manifest(("application/vnd.ollama.image.tensor", inline)) | {"runner": "mlx"}
    write_manifest(
        store,
        "ollama.com/library/one/latest",
        {"mediaType": LIST, "manifests": [safetensors, manifest((MODEL, inline))]},
        "manifests-v2",
    )
    write_manifest(
        store,
        "ollama.com/library/two/latest",
        {"mediaType": LIST, "manifests": [{"digest": digest_of(digest), "runner": "ollama"}]},
        "manifests-v2",
    )
    write_manifest(store, "registry.ollama.ai/library/one/latest", manifest((MODEL, by_digest)))  # superseded
    findings = look()
    assert findings.unreadable == ()
    assert {found.labels: found.candidate.files[0].name for found in findings.models} == {
        ("one:latest",): inline.replace(":", "-"),
        ("two:latest",): by_digest.replace(":", "-"),
    }


def digest_of(sha256: str) -> str:
    return f"sha256:{sha256}"


def test_ollama_what_is_no_model(home: Path) -> None:
    store = home / ".ollama" / "models"
    projector = blob(store, architecture="clip", metadata={"general.type": "mmproj"})
    library = "registry.ollama.ai/library"
    write_manifest(store, f"{library}/cloud/latest", manifest())
    write_manifest(store, f"{library}/cloud/other", {"layers": None})
    write_manifest(store, f"{library}/eyes/latest", manifest((PROJECTOR, projector)))
    write_manifest(store, f"{library}/odd/latest", manifest((MODEL, projector)))
    write_manifest(store, f"{library}/stray", "in a place where there are no manifests")
    assert look() == ((), ())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "3",
        '"text"',
        "\x00\x01",
        "[" * 100_000,
        '{"layers": 3}',
        '{"layers": [3]}',
        '{"layers": [{}]}',
        json.dumps({"layers": [{"mediaType": MODEL}]}),
        json.dumps({"layers": [{"mediaType": MODEL, "digest": 3}]}),
        json.dumps({"layers": [{"mediaType": MODEL, "digest": "sha256:../../../etc/passwd"}]}),
        json.dumps(manifest((MODEL, digest_of("0" * 64)))),  # the blob is missing
        json.dumps({"mediaType": LIST}),
        json.dumps({"mediaType": LIST, "manifests": [{}]}),
        json.dumps({"mediaType": LIST, "manifests": [{"digest": digest_of("0" * 64)}]}),
    ],
)
def test_ollama_damaged_manifests_are_counted(home: Path, content: str) -> None:
    store = home / ".ollama" / "models"
    damaged = write_manifest(store, "registry.ollama.ai/library/broken/latest", content)
    write_manifest(store, "registry.ollama.ai/library/good/latest", manifest((MODEL, blob(store))))
    findings = look()
    assert findings.unreadable == (damaged,)
    assert [found.labels for found in findings.models] == [("good:latest",)]


def test_lm_studio(home: Path) -> None:
    folder = home / ".lmstudio" / "models" / "publisher" / "Model-GGUF"
    path = tiny(folder / "Model-Q8_0.gguf")
    tiny(folder / "mmproj-Model-f16.gguf", architecture="clip")
    tiny(folder / "renamed.gguf", architecture="clip")
    (folder / "README.gguf.txt").write_text("no model")
    (folder / "._Model-Q8_0.gguf").write_text("left by macOS")
    found = only()
    assert (found.programs, found.labels) == (("LM Studio",), ("publisher/Model-GGUF/Model-Q8_0.gguf",))
    assert (found.candidate.name, found.candidate.files) == ("Model-Q8_0", (path,))
    assert found.candidate.source == str(path)


@pytest.mark.parametrize("setting", ["older home", "pointer", "settings", "settings of the older home"])
def test_lm_studio_elsewhere(home: Path, tmp_path: Path, setting: str) -> None:
    elsewhere, older = tmp_path / "elsewhere", home / ".cache" / "lm-studio"
    match setting:
        case "older home":
            path = older / "models" / "a" / "b" / "c.gguf"
        case "pointer":
            (home / ".lmstudio-home-pointer").write_text(f"{elsewhere}\n")
            path = elsewhere / "models" / "a" / "b" / "c.gguf"
        case _:
            settings = (home / ".lmstudio" if setting == "settings" else older) / "settings.json"
            settings.parent.mkdir(parents=True)
            settings.write_text(json.dumps({"downloadsFolder": str(elsewhere)}))
            path = elsewhere / "a" / "b" / "c.gguf"
    tiny(path)
    assert only().candidate.files == (path,)


@pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, "{}", *(
    json.dumps({"downloadsFolder": folder}) for folder in (None, 3, "", ".", "/nowhere", "/null\0", "/\ud800")
)])  # fmt: skip
def test_lm_studio_odd_settings_are_passed_over(home: Path, content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    tiny(home / "here.gguf")
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio" / "settings.json").write_text(content)
    (home / ".lmstudio-home-pointer").write_text("")
    assert look() == ((), ())


def snapshot(cache: Path, repository: str, commit: str, file: str, seed: int = 0) -> Path:
    """A file in huggingface_hub's cache: a link into the blobs, whose names are hashes."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    whole = tiny(folder / "new", seed)
    stored = folder / "blobs" / hashlib.sha256(whole.read_bytes()).hexdigest()
    stored.parent.mkdir(exist_ok=True)
    whole.rename(stored)
    link = folder / "snapshots" / commit / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(stored, link.parent))
    return link


def test_hub_cache(home: Path) -> None:
    cache = Path(constants.HF_HUB_CACHE)
    link = snapshot(cache, "owner/My--Model-GGUF", "1" * 40, "Q4/My--Model.Q4_K_M.gguf")
    (cache / "datasets--owner--text" / "snapshots" / "2").mkdir(parents=True)
    tiny(cache / "datasets--owner--text" / "snapshots" / "2" / "no.gguf")
    found = only()
    assert found.programs == ("Hugging Face",)
    assert found.labels == ("owner/My--Model-GGUF:Q4_K_M",)
    assert (found.candidate.origin, found.candidate.source) == (Origin.PULLED, "owner/My--Model-GGUF:Q4_K_M")
    assert (found.candidate.name, found.candidate.files) == ("My--Model-Q4_K_M", (link,))


def test_hub_cache_the_same_file_in_two_commits(home: Path) -> None:
    cache = Path(constants.HF_HUB_CACHE)
    for commit in ("1" * 40, "2" * 40):
        snapshot(cache, "owner/Model-GGUF", commit, "Model-Q8_0.gguf")
    assert only().labels == ("owner/Model-GGUF:Q8_0",)


def test_hub_cache_a_link_to_nothing_spoils_only_itself(home: Path) -> None:
    cache = Path(constants.HF_HUB_CACHE)
    dangling = snapshot(cache, "owner/Model-GGUF", "1" * 40, "Model-Q4_0.gguf", seed=1)
    dangling.resolve().unlink()
    snapshot(cache, "owner/Model-GGUF", "1" * 40, "Model-Q8_0.gguf")
    findings = look()
    assert findings.unreadable == (dangling,)
    assert [found.labels for found in findings.models] == [("owner/Model-GGUF:Q8_0",)]


def test_one_file_of_two_programs(home: Path) -> None:
    link = snapshot(Path(constants.HF_HUB_CACHE), "owner/Model-GGUF", "1" * 40, "Model-Q8_0.gguf")
    other = home / ".lmstudio" / "models" / "owner" / "Model-GGUF" / "Model-Q8_0.gguf"
    other.parent.mkdir(parents=True)
    other.symlink_to(link.resolve())
    found = only()
    assert found.programs == ("Hugging Face", "LM Studio")
    assert found.candidate.origin is Origin.PULLED


@pytest.mark.parametrize("moved", [False, True])
def test_llama_cpp(home: Path, monkeypatch: pytest.MonkeyPatch, moved: bool) -> None:
    cache = home / "moved" if moved else platformdirs.user_cache_path("llama.cpp", appauthor=False, opinion=False)
    if moved:
        monkeypatch.setenv("LLAMA_CACHE", str(cache))
    tiny(cache / "ggml-org_tiny-it-GGUF_tiny-it-Q4_0.gguf")
    found = only()
    assert found.programs == ("llama.cpp",)
    assert found.candidate.name == "tiny-it-Q4_0"


def test_jan_and_gpt4all(home: Path) -> None:
    jan = platformdirs.user_config_path(roaming=True) / "Jan" / "data"
    tiny(jan / "llamacpp" / "models" / "janhq" / "Jan-v3-Q8_0" / "model.gguf", 1)
    tiny(jan / "llamacpp" / "models" / "janhq" / "Jan-v3-Q8_0" / "mmproj.gguf", architecture="clip")
    tiny(platformdirs.user_data_path() / "nomic.ai" / "GPT4All" / "Mini.Q4_0.gguf", 2)
    findings = look()
    assert findings.unreadable == ()
    assert [(found.programs, found.candidate.name) for found in findings.models] == [
        (("Jan",), "Jan-v3-Q8_0"),
        (("GPT4All",), "Mini.Q4_0"),
    ]


def test_damaged_files_and_folders_are_counted(home: Path) -> None:
    folder = home / ".lmstudio" / "models"
    cut = tiny(folder / "a" / "cut.gguf")
    os.truncate(cut, 500)
    dangling = folder / "b.gguf"
    dangling.symlink_to(folder / "nowhere.gguf")
    loop = platformdirs.user_cache_path("llama.cpp", appauthor=False, opinion=False)
    loop.parent.mkdir(parents=True)
    loop.symlink_to(loop)  # cannot be listed, not even by root
    findings = look()
    assert findings.models == ()
    assert set(findings.unreadable) == {cut, dangling, loop}


def test_folders_that_link_to_each_other(home: Path) -> None:
    folder = home / ".lmstudio" / "models"
    tiny(folder / "a" / "one.gguf")
    (folder / "a" / "up").symlink_to(folder)
    assert only().candidate.name == "one"


def test_what_is_installed_already(home: Path) -> None:
    path = tiny(home / ".lmstudio" / "models" / "a" / "b" / "c.gguf")
    assert only().installed is None
    install(candidate_of(path), Catalogue(), "mine")
    installed = only().installed
    assert installed is not None
    assert installed.name == "mine"
