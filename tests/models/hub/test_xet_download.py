"""Downloads by xet, from hf_xet's own storage in a folder, which its `local://` addresses name."""

from __future__ import annotations

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import hf_xet
import pytest
from huggingface_hub import constants, hf_hub_download

from models.errors import DownloadError
from models.hub import patience
from models.hub.download import download
from models.hub.remote_file import RemoteFile
from tests.app.command import ROOT, environment
from tests.hub_server import Hub

NAME = "model-Q4_0.gguf"
CONTENT = random.Random(6).randbytes(3_000_000)
FILE = RemoteFile(NAME, len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def xet_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """A hub that keeps the file with xet too."""
    monkeypatch.setattr(patience, "sleep", lambda seconds: None)
    hub.xet_endpoint = f"local://{tmp_path / 'storage'}"
    with hf_xet.XetSession().new_upload_commit(endpoint=hub.xet_endpoint) as commit:
        upload = commit.start_upload_bytes(CONTENT)
    hub.add("u/m-GGUF", {NAME: CONTENT}, xet={NAME: upload.result().xet_info.hash})
    return hub


def pull() -> Path:
    return download("u/m-GGUF", "main", [FILE], lambda done, total: None)[0]


def write_part(content: bytes) -> Path:
    """What a killed download would have left."""
    part = Path(constants.HF_HUB_CACHE, "models--u--m-GGUF", "blobs", f"{FILE.sha256}.octavo-part")
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


def test_a_file_comes_by_xet(xet_hub: Hub) -> None:
    path = pull()
    assert path.read_bytes() == CONTENT
    assert str(path) == hf_hub_download("u/m-GGUF", NAME, local_files_only=True)
    assert not xet_hub.downloads(NAME)


def test_a_download_by_xet_is_continued(xet_hub: Hub) -> None:
    write_part(CONTENT[:1_234_567])
    assert pull().read_bytes() == CONTENT
    assert not xet_hub.downloads(NAME)


def test_bytes_that_are_there_are_not_fetched_again(xet_hub: Hub) -> None:
    part = write_part(bytes(1_234_567))
    with pytest.raises(DownloadError, match="not the same as what the hub announced"):
        pull()
    assert not part.exists()
    assert pull().read_bytes() == CONTENT


def test_xet_can_be_switched_off(xet_hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert pull().read_bytes() == CONTENT
    assert len(xet_hub.downloads(NAME)) == 1


def test_http_continues_where_xet_fails(xet_hub: Hub) -> None:
    write_part(CONTENT[:1_234_567])
    xet_hub.fail("xet-read-token", status=403, times=None)
    assert pull().read_bytes() == CONTENT
    assert [request.range for request in xet_hub.downloads(NAME)] == ["bytes=1234567-"]


def test_http_continues_where_xet_lacks_the_file(xet_hub: Hub) -> None:
    xet_hub.add("u/m-GGUF", {NAME: CONTENT}, xet={NAME: "ab" * 32})
    assert pull().read_bytes() == CONTENT
    assert len(xet_hub.downloads(NAME)) == 1


def test_a_silent_xet_server_does_not_keep_ctrl_c_away(xet_hub: Hub) -> None:
    xet_hub.xet_endpoint = xet_hub.endpoint
    xet_hub.fail("/reconstructions/", silent=True, times=None)
    script = f"from models.hub.download import *; download('u/m-GGUF', 'main', [RemoteFile{tuple(FILE)}], print)"
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(),
    ) as process:
        deadline = time.monotonic() + 60
        while not any("/reconstructions/" in request.path for request in xet_hub.requests):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in errors
