"""Downloads from a hub on loopback that fails in every way: what arrives, what is fetched again, what is said."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir, snapshot_download

from models.errors import DownloadError, HubError
from models.hub import patience
from models.hub.download import download
from models.hub.remote_file import RemoteFile
from tests.app.command import ROOT, environment
from tests.hub_server import Hub

NAME = "model-Q4_0.gguf"
CONTENT = random.Random(5).randbytes(1_000_000)
CUT = 600_000
_SCRIPT = """
import json, sys
from models.hub.download import download
from models.hub.remote_file import RemoteFile
files = [RemoteFile(*file) for file in json.loads(sys.argv[1])]
print(*download("u/m-GGUF", "main", files, lambda done, total: None))
"""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which last no time."""
    made: list[float] = []
    monkeypatch.setattr(patience, "sleep", made.append)
    return made


def remote(content: bytes = CONTENT, name: str = NAME) -> RemoteFile:
    return RemoteFile(name, len(content), hashlib.sha256(content).hexdigest())


def pull(*files: RemoteFile, repository: str = "u/m-GGUF", revision: str | None = "main") -> tuple[Path, ...]:
    return download(repository, revision, files or [remote()], lambda done, total: None)


def child(before: str = "") -> subprocess.Popen[str]:
    """The same in a process of its own, which has no fixtures. before: code to run first."""
    return subprocess.Popen(
        [sys.executable, "-c", before + _SCRIPT, json.dumps([remote()])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )


def parts() -> list[Path]:
    return list(Path(constants.HF_HUB_CACHE).glob("*/blobs/*.octavo-part"))


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_file_arrives_where_other_programs_find_it(hub: Hub) -> None:
    commit = hub.add("u/m-GGUF", {NAME: CONTENT, "README.md": b"read me"})
    seen: list[tuple[int, int]] = []
    (path,) = download("u/m-GGUF", "main", [remote()], lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert str(path) == hf_hub_download("u/m-GGUF", NAME, local_files_only=True)
    assert snapshot_download("u/m-GGUF", revision=commit, local_files_only=True, allow_patterns=NAME) == str(
        path.parent
    )
    (cached,) = scan_cache_dir(constants.HF_HUB_CACHE).repos
    assert (cached.repo_id, cached.nb_files, list(cached.refs)) == ("u/m-GGUF", 1, ["main"])
    assert not scan_cache_dir(constants.HF_HUB_CACHE).warnings
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)
    assert not parts()


def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT}, gated="manual", members=["hf_friend"])
    monkeypatch.setenv("HF_TOKEN", "hf_friend")
    pull()
    assert all(request.authorized == (request.host == "hub") for request in hub.requests)
    assert {request.host for request in hub.requests} == {"hub", "cdn"}


def test_a_file_in_the_cache_is_not_downloaded(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    theirs = hf_hub_download("u/m-GGUF", NAME)
    hub.forget_requests()
    (ours,) = pull()
    assert str(ours) == theirs
    assert not hub.downloads(NAME)


def test_content_of_an_earlier_commit_is_not_downloaded(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    (before,) = pull()
    hub.add("u/m-GGUF", {NAME: CONTENT, "README.md": b"new"})
    hub.forget_requests()
    (after,) = pull()
    assert before != after
    assert before.samefile(after)
    assert not hub.downloads(NAME)


def test_without_a_network_what_is_in_the_cache_is_enough(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    (path,) = pull()
    hub.forget_requests()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert pull() == (path,)
    assert not hub.requests
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        pull(remote(b"other", "other.gguf"))


def test_several_files_in_folders_and_small_ones(hub: Hub) -> None:
    contents = {"Q8/m-00001-of-00002.gguf": CONTENT[:5000], "Q8/m-00002-of-00002.gguf": CONTENT[5000:9000]}
    hub.add("u/m-GGUF", contents | {"config.json": b"{}"})
    files = [remote(content, name) for name, content in contents.items()]
    seen: list[int] = []
    paths = download(
        "u/m-GGUF", None, [*files, RemoteFile("config.json", 2, None)], lambda done, total: seen.append(done)
    )
    assert [path.read_bytes() for path in paths] == [*contents.values(), b"{}"]
    assert paths[0].parent == paths[1].parent
    assert seen == sorted(seen)
    assert seen[-1] == 9002


def test_a_connection_that_is_cut_is_continued(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, cut_at=CUT)
    (path,) = pull()
    assert path.read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == ["", f"bytes={CUT}-"]


def test_patience_begins_anew_with_every_byte(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    cuts = range(100_000, 900_001, 100_000)
    assert len(cuts) > len(patience.PAUSES_S)
    for cut in cuts:
        hub.fail(NAME, cut_at=cut)
    assert pull()[0].read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == ["", *(f"bytes={cut}-" for cut in cuts)]


def test_a_connection_that_is_cut_again_and_again_is_continued_by_the_next_run(hub: Hub, pauses: list[float]) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, cut_at=CUT, times=None)
    with pytest.raises(HubError, match="broke off: run this again; downloads resume"):
        pull()
    assert pauses == list(patience.PAUSES_S)
    assert [part.stat().st_size for part in parts()] == [CUT]
    hub.mend()
    hub.forget_requests()
    (path,) = pull()
    assert path.read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == [f"bytes={CUT}-"]


def test_a_wrong_byte_is_found_and_the_next_run_is_right(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, flip=123_456)
    with pytest.raises(DownloadError, match="not the same as what the hub announced, and was deleted: run this again"):
        pull()
    assert not parts()
    assert not list(Path(constants.HF_HUB_CACHE).rglob("*.gguf"))
    assert pull()[0].read_bytes() == CONTENT


def test_a_wrong_byte_in_a_small_file_is_found(hub: Hub) -> None:
    hub.add("u/m-GGUF", {"config.json": b'{"a": 1}'})
    hub.fail("/resolve/", flip=6)
    with pytest.raises(DownloadError, match="not the same"):
        pull(RemoteFile("config.json", 8, None))


def test_more_bytes_than_announced_are_found(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, extra=b"!")
    with pytest.raises(DownloadError, match="longer than what the hub announced"):
        pull()
    assert not parts()


def test_a_server_that_knows_no_ranges_sends_everything_again(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, cut_at=CUT)
    hub.fail(NAME, ignore_range=True)
    seen: list[int] = []
    (path,) = download("u/m-GGUF", "main", [remote()], lambda done, total: seen.append(done))
    assert path.read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == ["", f"bytes={CUT}-"]
    assert seen[-1] == len(CONTENT)


def test_content_that_changed_between_two_runs_is_not_mixed(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, cut_at=CUT, times=None)
    with pytest.raises(HubError):
        pull()
    hub.mend()
    hub.forget_requests()
    other = CONTENT[::-1]
    hub.add("u/m-GGUF", {NAME: other})
    with pytest.raises(DownloadError, match="has changed on the hub"):
        pull()
    assert pull(remote(other))[0].read_bytes() == other
    assert [request.range for request in hub.downloads(NAME)] == [""]


def test_too_many_requests_are_waited_for_as_long_as_the_hub_asks(hub: Hub, pauses: list[float]) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail("/resolve/", method="HEAD", status=429, headers={"Retry-After": "7"})
    hub.fail(NAME, status=429, headers={"RateLimit": '"resolvers";r=0;t=55'})
    assert pull()[0].read_bytes() == CONTENT
    assert pauses == [7, 55]


def test_a_wait_of_an_hour_is_not_made_in_silence(hub: Hub, pauses: list[float]) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, status=429, headers={"Retry-After": "3600"})
    with pytest.raises(HubError, match="run this again in 3600 seconds"):
        pull()
    assert not pauses


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failing_hub_is_asked_again(hub: Hub, status: int) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, status=status, times=3)
    assert pull()[0].read_bytes() == CONTENT


def test_a_hub_that_goes_on_failing_is_reported(hub: Hub, pauses: list[float]) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, status=500, times=None)
    with pytest.raises(HubError, match=r"failure of its own \(HTTP 500\)"):
        pull()
    assert pauses == list(patience.PAUSES_S)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_is_not_tried_again(hub: Hub, pauses: list[float], status: int) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, status=status, times=None)
    with pytest.raises(HubError):
        pull()
    assert not pauses
    assert len(hub.downloads(NAME)) == 1


def test_a_slow_hub_is_waited_for(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT[:3000]})
    hub.fail(NAME, bytes_per_s=10_000)
    assert pull(remote(CONTENT[:3000]))[0].read_bytes() == CONTENT[:3000]


def test_a_hub_that_falls_silent_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, stall_at=CUT)
    assert pull()[0].read_bytes() == CONTENT
    assert f"bytes={CUT}-" in [request.range for request in hub.downloads(NAME)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_stopped_is_continued_by_the_next(hub: Hub, number: signal.Signals) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, stall_at=CUT)
    with child() as process:
        wait_for(lambda: [part.stat().st_size for part in parts()] == [CUT])
        process.send_signal(number)
    assert process.returncode == -number
    assert [part.stat().st_size for part in parts()] == [CUT]
    hub.forget_requests()
    with child() as process:
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert Path(output.strip()).read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == [f"bytes={CUT}-"]
    assert not parts()


def test_a_process_that_is_killed_before_the_last_step_downloads_nothing_again(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, cut_at=CUT, times=None)
    with pytest.raises(HubError):
        pull()
    (part,) = parts()
    part.write_bytes(CONTENT)
    hub.forget_requests()
    assert pull()[0].read_bytes() == CONTENT
    assert not hub.downloads(NAME)


def test_two_processes_download_a_file_once(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail(NAME, stall_at=CUT)
    with child() as first:
        wait_for(lambda: [part.stat().st_size for part in parts()] == [CUT])
        with child() as second:
            wait_for(lambda: sum(request.method == "HEAD" for request in hub.requests) == 2)
            assert len(hub.downloads(NAME)) == 1
            hub.end_stalls()
            outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert outputs[0] == outputs[1]
    assert Path(outputs[0][0].strip()).read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == [""]


def test_a_full_disk_is_found_out_first(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    with pytest.raises(DownloadError, match=r"needs 9,094\.9 TiB more on the disk of .* are free: make room"):
        pull(RemoteFile(NAME, 10**16, None))
    assert not hub.downloads(NAME)


def test_a_disk_that_fills_up_meanwhile(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    with child(before=f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({CUT}, {CUT}))") as process:
        assert "DownloadError" in process.communicate(timeout=60)[1].splitlines()[-1]
    assert [part.stat().st_size for part in parts()] == [CUT]
    hub.forget_requests()
    assert pull()[0].read_bytes() == CONTENT
    assert [request.range for request in hub.downloads(NAME)] == [f"bytes={CUT}-"]


def test_a_cache_that_cannot_be_written(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    hub.add("u/m-GGUF", {NAME: CONTENT})
    with pytest.raises(DownloadError, match=r"The hub's cache .* cannot be used \(Not a directory\)"):
        pull()


def test_without_symbolic_links_there_is_one_copy(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_SYMLINKS", True)
    hub.add("u/m-GGUF", {NAME: CONTENT})
    (path,) = pull()
    assert path.read_bytes() == CONTENT
    assert not path.is_symlink()
    assert str(path) == hf_hub_download("u/m-GGUF", NAME, local_files_only=True)
    assert sum(file.stat().st_size == len(CONTENT) for file in Path(constants.HF_HUB_CACHE).rglob("*")) == 1


def test_a_part_that_nobody_continues_is_removed_in_the_end(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT, "b.gguf": b"b", "c.gguf": b"c"})
    blobs = pull(remote(b"b", "b.gguf"))[0].resolve().parent
    old, new = blobs / "1.octavo-part", blobs / "2.octavo-part"
    for part in (old, new):
        part.write_bytes(b"begun")
    os.utime(old, (0, 0))
    pull(remote(b"c", "c.gguf"))
    assert parts() == [new]


def test_an_etag_that_is_a_path_is_not_followed(hub: Hub) -> None:
    hub.add("u/m-GGUF", {NAME: CONTENT})
    hub.fail("/resolve/", method="HEAD", headers={"X-Linked-Etag": '"../../../escaped"'})
    with pytest.raises(HubError, match="is not the hub"):
        pull(RemoteFile(NAME, len(CONTENT), None))
