"""What the hub and its cache say about repositories."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from huggingface_hub import constants, hf_hub_download

from models.errors import HubError
from models.hub.cache import cached_paths, is_copy_of
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile
from models.hub.repository import repository
from models.hub.search import search
from tests.hub_server import Hub

QWEN = {"qwen3-Q4_K_M.gguf": b"four", "qwen3-Q8_0.gguf": b"eighteight", "README.md": b"Hello."}


def test_search(hub: Hub) -> None:
    gguf = {"total": 4_000_000_000, "architecture": "qwen3", "context_length": 40960}
    hub.add("a/Qwen3-4B-GGUF", QWEN, downloads=5, likes=2, gguf=gguf, lastModified="2025-03-04T05:06:07.000Z")
    hub.add("b/qwen3-4b-gguf", {"qwen3.F16.gguf": b"sixteen"}, downloads=70, gated="auto")
    hub.add("b/qwen3-8b-gguf", QWEN, downloads=900)
    hub.add("c/qwen3-4b", {"model.safetensors": b"x"}, downloads=1000, tags=["safetensors"])
    second, first = sorted(search(["qwen3", "4B"], 10), key=lambda found: found.downloads)
    assert [found.name for found in search(["qwen3", "4B"], 10)] == [first.name, second.name]
    assert (first.name, first.downloads, first.is_gated, first.parameters) == ("b/qwen3-4b-gguf", 70, True, None)
    assert (second.name, second.downloads, second.likes, second.is_gated) == ("a/Qwen3-4B-GGUF", 5, 2, False)
    assert (second.parameters, second.architecture) == (4_000_000_000, "qwen3")
    assert second.updated == datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
    assert [(variant.name, variant.n_bytes) for variant in second.variants] == [("Q4_K_M", 4), ("Q8_0", 10)]


def test_search_asks_for_no_more_than_is_shown(hub: Hub) -> None:
    for number in range(30):
        hub.add(f"me/model{number}-GGUF", QWEN, downloads=number)
    found = search(["model"], 12)
    assert [one.name for one in found] == [f"me/model{number}-GGUF" for number in range(29, 17, -1)]
    assert all(len(one.variants) == 2 for one in found)
    assert len(hub.requests) == 1 + 12


def test_a_search_survives_a_repository_that_does_not_answer(hub: Hub) -> None:
    hub.add("me/a-GGUF", QWEN, downloads=2)
    hub.add("me/b-GGUF", QWEN, downloads=1)
    hub.fail("/api/models/me/a-GGUF", status=403, times=None)
    a, b = search(["gguf"], 5)
    assert (a.name, a.variants) == ("me/a-GGUF", ())
    assert len(b.variants) == 2


def test_a_search_is_asked_again_when_the_hub_is_busy(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.hub.patience.PAUSES_S", (0,))
    hub.add("me/a-GGUF", QWEN)
    hub.fail("/api/models", status=429, headers={"Retry-After": "0"}, times=1)
    assert len(search(["gguf"], 5)) == 1


def test_no_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    for ask in (lambda: search(["x"], 5), lambda: repository(HubReference("me/m"))):
        with pytest.raises(HubError, match="cannot be reached"):
            ask()


def test_a_repository_with_sizes_and_hashes(hub: Hub) -> None:
    commit = hub.add("me/m-GGUF", QWEN, gguf={"total": 12, "context_length": 99}, gated="manual")
    remote = repository(HubReference("me/m-GGUF", "Q8_0"))
    assert (remote.name, remote.commit) == ("me/m-GGUF", commit)
    assert (remote.parameters, remote.context, remote.is_gated) == (12, 99, True)
    sizes = {file.name: (file.n_bytes, bool(file.sha256)) for file in remote.files}
    assert sizes == {"qwen3-Q4_K_M.gguf": (4, True), "qwen3-Q8_0.gguf": (10, True), "README.md": (6, False)}


def test_figures_that_are_none(hub: Hub) -> None:
    hub.add("me/m-GGUF", QWEN, gguf={"total": "many", "context_length": -1})
    remote = repository(HubReference("me/m-GGUF"))
    assert (remote.parameters, remote.context) == (None, None)


def test_a_revision(hub: Hub) -> None:
    first = hub.add("me/m-GGUF", QWEN)
    hub.add("me/m-GGUF", {"other.gguf": b"x"}, revision="refs/pr/1")
    assert repository(HubReference("me/m-GGUF", revision=first)).commit == first
    assert [file.name for file in repository(HubReference("me/m-GGUF", revision="refs/pr/1")).files] == ["other.gguf"]
    with pytest.raises(HubError, match="no such branch"):
        repository(HubReference("me/m-GGUF", revision="v9"))


@pytest.mark.parametrize("name", ["me/none", "me/a--b", "me/..", "me/" + "x" * 100])
def test_a_repository_that_is_not_there(hub: Hub, name: str) -> None:
    with pytest.raises(HubError, match=r"has no repository|cannot be the name"):
        repository(HubReference(name))


@pytest.mark.parametrize(
    "answer",
    [
        *("null", "[1]", "{}", '{"id": "me/m"}', '{"id": "me/m", "sha": "1", "siblings": "x"}', "{", "<html>"),
        *('{"id": "me/m", "sha": "1", "siblings": [{"rfilename": 5}]}', '{"id": "me/m", "sha": "1", "gguf": 5}'),
        '{"id": "me/m", "sha": "1", "lastModified": "yesterday"}',
    ],
)
def test_what_answers_is_not_the_hub(hub: Hub, answer: str) -> None:
    hub.answer_all = answer
    for ask in (lambda: search(["x"], 5), lambda: repository(HubReference("me/m"))):
        with pytest.raises(HubError, match="is not the hub: check HF_ENDPOINT"):
            ask()


def test_files_that_would_lead_out_of_the_cache_are_not_there(hub: Hub) -> None:
    outside = ("../a.gguf", "a/../../b.gguf", "/etc/c.gguf", "a\\..\\d.gguf", "C:e.gguf", "a/C:/f.gguf")
    hub.add("me/m-GGUF", QWEN | dict.fromkeys(outside, b"x") | {"sub/..g.gguf": b"x"})
    names = [file.name for file in repository(HubReference("me/m-GGUF")).files]
    assert names == [*QWEN, "sub/..g.gguf"]


def test_a_size_that_is_none(hub: Hub) -> None:
    hub.answer_all = json.dumps({"id": "me/m", "sha": "1", "siblings": [{"rfilename": "a.gguf", "size": -5}]})
    assert repository(HubReference("me/m")).files == (RemoteFile("a.gguf", 0, None),)


def test_offline_the_cache_answers(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub.add("me/m-GGUF", QWEN)
    online = {file.name: file for file in repository(HubReference("me/m-GGUF")).files}
    hf_hub_download("me/m-GGUF", "qwen3-Q4_K_M.gguf")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.forget_requests()
    remote = repository(HubReference("me/m-GGUF"))
    assert remote.commit == commit
    assert remote.files == (online["qwen3-Q4_K_M.gguf"],)
    (path,) = cached_paths("me/m-GGUF", commit, remote.files) or ()
    assert path.read_bytes() == b"four"
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        repository(HubReference("me/other-GGUF"))
    assert hub.requests == []


def test_what_is_in_the_cache(hub: Hub) -> None:
    first = hub.add("me/m-GGUF", QWEN)
    four, eight, _ = repository(HubReference("me/m-GGUF")).files
    path = hf_hub_download("me/m-GGUF", four.name)
    assert cached_paths("me/m-GGUF", first, [four]) is not None
    assert cached_paths("me/m-GGUF", first, [four, eight]) is None
    assert cached_paths("me/m-GGUF", first, [four._replace(n_bytes=5)]) is None

    second = hub.add("me/m-GGUF", QWEN | {"README.md": b"Hello again.", four.name: b"FOUR"})
    new, same, _ = repository(HubReference("me/m-GGUF")).files
    assert (new.name, same) == (four.name, eight)
    (cached,) = cached_paths("me/m-GGUF", first, [four]) or ()
    assert str(cached) == path
    assert is_copy_of(cached, four, second)
    assert not is_copy_of(cached, new, second)
    assert not is_copy_of(cached.with_name("gone"), four, first)
