"""What is said of each failure; the failures are real ones of the hub on loopback, and of addresses without a hub."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from models.errors import HubError
from models.hub.explained import explained
from tests.app.command import ROOT, environment
from tests.hub_server import MEMBER, Hub


def ask(repository: str = "u/m-GGUF", revision: str | None = None) -> None:
    with explained(repository):
        HfApi().model_info(repository, revision=revision, timeout=20)


def fetch(name: str = "m.gguf", repository: str = "u/m-GGUF") -> None:
    with explained(f"{repository}:Q4_0"):
        HfApi().get_hf_file_metadata(url=f"{constants.ENDPOINT}/{repository}/resolve/main/{name}")


@pytest.fixture
def elsewhere(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """To set another ENDPOINT with; no proxy of the machine is in the way."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_gated_repository_says_where_to_ask(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"}, gated="manual")
    page = re.escape(f"ask for access at {hub.endpoint}/u/m-GGUF")
    with pytest.raises(HubError, match=f"'u/m-GGUF' is gated: {page}, then set HF_TOKEN"):
        fetch()
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    with pytest.raises(HubError, match=f"'u/m-GGUF' is gated, and your token is not let in: {page}"):
        fetch()


@pytest.mark.parametrize("token", ["hf_ü", "hf_\x01"])
def test_a_token_that_cannot_be_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"})
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError, match=r"^HF_TOKEN, or .* has characters that no token has"):
        ask()
    assert hub.requests == []


def test_a_missing_repository(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubError, match="no repository 'u/none', or it is private: check the name, or set HF_TOKEN"):
        ask("u/none")
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    hub.add("u/m-GGUF", {"m.gguf": b"m"}, members=[MEMBER])
    with pytest.raises(HubError, match="no repository 'u/none', or hides it from your token"):
        ask("u/none")


def test_a_private_repository(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"}, private=True)
    with pytest.raises(HubError, match="or it is private"):
        ask()
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    ask()


def test_a_missing_revision_and_a_missing_file(hub: Hub) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"})
    with pytest.raises(HubError, match="'u/m-GGUF' has no such branch, tag or commit"):
        ask(revision="v9")
    with pytest.raises(HubError, match=r"'u/m-GGUF' has no file 'a/n o.gguf': see which there are at http"):
        fetch("a/n%20o.gguf")


def test_a_token_that_is_not_known(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.add("u/m-GGUF", {"m.gguf": b"m"})
    with pytest.raises(HubError, match="does not accept your token: correct HF_TOKEN"):
        ask()


@pytest.mark.parametrize(
    ("status", "headers", "sentence"),
    [
        (401, {}, "does not accept your token"),
        (403, {}, r"refuses what was asked of 'u/m-GGUF' \(HTTP 403\)"),
        (403, {"X-Error-Message": "no \x1b[31mred"}, r"\(HTTP 403, no ␛\[31mred\)"),
        (418, {}, r"\(HTTP 418\)"),
        (429, {}, "in some minutes; with HF_TOKEN"),
        (429, {"Retry-After": "40"}, "in 40 seconds"),
        (429, {"RateLimit": '"api";r=0;t=77'}, "in 77 seconds"),
        (500, {}, r"failure of its own \(HTTP 500\)"),
        (503, {}, r"failure of its own \(HTTP 503\)"),
    ],
)
def test_refusals(hub: Hub, status: int, headers: dict[str, str], sentence: str) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"})
    hub.fail("/api/models/u/m-GGUF", status=status, headers=headers)
    with pytest.raises(HubError, match=sentence):
        ask()


def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="'u/m-GGUF' is not in the cache, and HF_HUB_OFFLINE keeps Octavo off"):
        ask()


def test_no_hub_there(elsewhere: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        elsewhere.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(HubError, match=r"127.0.0.1:\d+ cannot be reached \(.*[Cc]onn.*\): check the network"):
            ask()


def test_no_such_host(elsewhere: pytest.MonkeyPatch) -> None:
    elsewhere.setattr(constants, "ENDPOINT", "http://nowhere.invalid")
    with pytest.raises(HubError, match=r"nowhere.invalid cannot be reached \(.*\): check the network"):
        ask()


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://huggingface.co", "http://[::1"])
def test_an_endpoint_that_is_no_address(elsewhere: pytest.MonkeyPatch, endpoint: str) -> None:
    elsewhere.setattr(constants, "ENDPOINT", endpoint)
    with pytest.raises(HubError, match=f"HF_ENDPOINT, '{re.escape(endpoint)}', is not an address"):
        ask()


def test_a_certificate_that_nobody_vouches_for(elsewhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = """
import socket, ssl, subprocess, sys
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", "key",
    "-out", "certificate"], check=True, capture_output=True)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("certificate", "key")
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
try:
    context.wrap_socket(listener.accept()[0], server_side=True)
except ssl.SSLError:
    pass
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as server:
        assert server.stdout is not None
        elsewhere.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{server.stdout.readline().strip()}")
        with pytest.raises(HubError, match=r"certificate of 127.0.0.1:\d+ cannot be verified"):
            ask()


def test_a_proxy_that_refuses(hub: Hub, elsewhere: pytest.MonkeyPatch) -> None:
    elsewhere.delenv("NO_PROXY")
    assert "The proxy refuses or does not answer (501" in _said_by_a_process({"HTTPS_PROXY": hub.endpoint})


def test_variables_that_name_no_usable_proxy(elsewhere: pytest.MonkeyPatch) -> None:
    elsewhere.delenv("NO_PROXY")
    assert "names cannot be used (Unknown scheme" in _said_by_a_process({"HTTPS_PROXY": "nonsense://127.0.0.1:1"})
    assert "names cannot be used (Using SOCKS proxy, but" in _said_by_a_process({"ALL_PROXY": "socks5://127.0.0.1:1"})


def test_something_else_answers(elsewhere: pytest.MonkeyPatch, hub: Hub) -> None:
    hub.add("u/m-GGUF", {"README.md": b"<html>Log in to the hotel's network"})
    elsewhere.setattr(constants, "ENDPOINT", f"{hub.endpoint}/u/m-GGUF/resolve/main/README.md#")
    with pytest.raises(HubError, match="is not the hub: check HF_ENDPOINT"):
        ask()


def test_a_name_that_is_none() -> None:
    with pytest.raises(HubError, match="cannot be the name of a repository"):
        ask("u/m..GGUF")


def test_no_statistics_are_sent_and_nothing_is_logged(hub: Hub) -> None:
    hub.add("u/m-GGUF", {"m.gguf": b"m"})
    hub.fail("/api/models/u/m-GGUF", headers={"X-HF-Warning": "topic; Buy now"})
    assert _said_by_a_process({"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_TELEMETRY": "0"}) == "1\n"
    assert [request.path for request in hub.requests] == ["/api/models/u/m-GGUF"]


def _said_by_a_process(variables: dict[str, str]) -> str:
    """The sentence of a process of its own: some variables are read once. Without a failure, "1": no statistics."""
    script = """
import os
from huggingface_hub import HfApi
from models.errors import HubError
from models.hub.explained import explained
try:
    with explained("u/m-GGUF"):
        HfApi().model_info("u/m-GGUF", timeout=20)
    print(os.environ["HF_HUB_DISABLE_TELEMETRY"])
except HubError as error:
    print(error)
"""
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment({"HF_ENDPOINT": "https://hub.invalid", **variables}),
        timeout=60,
        check=True,
    )
    assert result.stderr == ""
    return result.stdout
