"""A stand-in for the Hugging Face hub on loopback, which answers what huggingface_hub asks, and fails when told to.

Two real HTTP servers: the hub itself, and the other host ("CDN") that it sends clients to for large files, as the real
one does. What they answer follows huggingface_hub's own requests and the responses that it reads: `/api/models…`,
`/USER/REPO/resolve/REVISION/FILE` and their headers.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tests.hub_repository import HubFile, Repository, entry, record, tree

MEMBER = "hf_member"
"""A token that the hub knows. It opens private repositories; gated ones name the tokens they let in."""
INVALID_TOKEN = "Invalid credentials in Authorization header"
_BLOCK = 1 << 16


class Request(NamedTuple):
    """One request as it arrived. host: "hub" or "cdn". range: the header, "" without one."""

    host: str
    method: str
    path: str
    range: str
    authorized: bool


@dataclass
class Fault:
    """What goes wrong with a request whose path contains `where`, the next `times` times (None: always).

    A large file is asked for twice: at the hub, /USER/REPO/resolve/REVISION/FILE, which says where it is, and at the
    CDN, /USER/REPO/COMMIT/FILE. A fault meets GETs at the former only if `where` contains "/resolve/".
    status: answer this, with `headers`, instead of the file. Without it, `headers` replace those of the right answer.
    cut_at: end the connection at this position of the file. stall_at: wait there until `Hub.end_stalls`. flip: position
    of a byte that arrives wrong. extra: bytes sent (and announced) after the end of the file. ignore_range: answer 200
    with the whole file. silent: answer nothing until then. bytes_per_s: send slowly.
    """

    where: str
    times: int | None = 1
    method: str = "GET"
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    stall_at: int | None = None
    flip: int | None = None
    extra: bytes = b""
    ignore_range: bool = False
    silent: bool = False
    bytes_per_s: int | None = None


class Hub:
    """Both servers, what they hold, what they were asked, and what they are to do wrong.

    answer_all: sent with status 200 whatever is asked, as from something that is no hub.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.page_size = 100
        self.xet_endpoint = ""
        self.answer_all: str | None = None
        self._stalls_ended = threading.Event()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._servers = [_Server(self, "hub"), _Server(self, "cdn")]
        self.endpoint, self.cdn = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.end_stalls()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        *,
        revision: str = "main",
        gated: bool | str = False,
        members: Iterable[str] = (),
        private: bool = False,
        xet: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> str:
        """A new commit of `name` with exactly `files`, at the head of `revision`; the commit's hash is returned.

        Files are kept as the hub keeps large ones (LFS: found by sha256, served by the CDN), but for .json, .md and
        .txt. xet: the xet hash of the files that have one. fields: of the API's answer, as the hub spells them
        (downloads=5, lastModified="2025-01-02T03:04:05.000Z", gguf={"total": …}, tags=[…]).
        """
        files_by_name = {
            path: HubFile.of(content, not path.endswith((".json", ".md", ".txt"))) for path, content in files.items()
        }
        commit = hashlib.sha1(
            repr(sorted((path, file.etag) for path, file in files_by_name.items())).encode()
        ).hexdigest()
        defaults = {
            "tags": ["gguf"],
            "downloads": 0,
            "likes": 0,
            "lastModified": "2025-01-02T03:04:05.000Z",
            "createdAt": "2025-01-01T00:00:00.000Z",
        }
        repository = self.repositories.setdefault(name, Repository(name, {}, {}, defaults))
        repository.commits[commit] = files_by_name
        repository.refs[revision] = commit
        repository.record |= fields
        repository.gated, repository.private = gated, private
        repository.members = frozenset(members)
        repository.xet = xet or {}
        return commit

    def fail(self, where: str, **what: Any) -> None:
        """Add a Fault: `hub.fail("model.gguf", cut_at=600)`."""
        with self._lock:
            self._faults.append(Fault(where, **what))

    def mend(self) -> None:
        """Forget every fault that is left."""
        with self._lock:
            self._faults.clear()

    def end_stalls(self) -> None:
        """Go on sending wherever a fault's `stall_at` has stopped that, now and from now on."""
        self._stalls_ended.set()

    def await_stalls(self) -> None:
        self._stalls_ended.wait()

    def downloads(self, name: str) -> list[Request]:
        """The requests that read the file `name` itself, in order."""
        return [request for request in self.requests if request.method == "GET" and _cdn_name(request.path) == name]

    def forget_requests(self) -> None:
        self.requests.clear()

    def fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self._faults:
                hidden = method == "GET" and "/resolve/" in path and "/resolve/" not in fault.where
                if fault.method == method and fault.where in path and not hidden:
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times == 0:
                            self._faults.remove(fault)
                    return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, hub: Hub, host: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub, self.host = hub, host

    def handle_error(self, *_: object) -> None:
        """Clients that are killed are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Tests read `Hub.requests`."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
        self._answer()

    def _answer(self) -> None:
        hub, url = self.server.hub, urlsplit(self.path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        path = unquote(url.path)
        hub.requests.append(
            Request(self.server.host, self.command, path, self.headers.get("Range", ""), authorized=bool(token))
        )
        self._fault = hub.fault(self.command, path)
        if self._fault and self._fault.silent:
            hub.await_stalls()
            self.close_connection = True
        elif self._fault and self._fault.status:
            self._refuse(self._fault.status)
        elif hub.answer_all is not None:
            self._send(200, hub.answer_all.encode(), {"Content-Type": "application/json"})
        elif self.server.host == "cdn":
            self._send_cdn(path)
        elif token and token != MEMBER and not any(token in repo.members for repo in hub.repositories.values()):
            self._refuse(401, INVALID_TOKEN)
        elif path == "/api/models":
            self._list(parse_qs(url.query), token)
        elif path.startswith("/api/models/"):
            self._api(path.removeprefix("/api/models/"), url.path, parse_qs(url.query), token)
        else:
            self._resolve(url.path, token)

    def _list(self, query: Mapping[str, Sequence[str]], token: str) -> None:
        hub = self.server.hub
        words = query.get("search", [""])[0].lower().split()
        tags = set(query.get("filter", ()))
        author = query.get("author", [""])[0]
        found = [
            repository
            for repository in hub.repositories.values()
            if all(word in repository.name.lower() for word in words)
            and tags <= set(repository.record["tags"])
            and repository.name.startswith(f"{author}/" if author else "")
            and (token or not repository.private)
        ]
        if "sort" in query:
            key = query["sort"][0]
            found.sort(key=lambda repository: repository.record.get(key, 0), reverse=True)
        start = int(query.get("cursor", ["0"])[0])
        stop = start + min(int(query.get("limit", ["1000"])[0]), hub.page_size)
        headers = {}
        if stop < len(found):
            following = urlencode({**query, "cursor": [str(stop)]}, doseq=True)
            headers["Link"] = f'<{hub.endpoint}/api/models?{following}>; rel="next"'
        full = "siblings" if query.get("full") else ""
        self._send_json([record(repo, "main", query, full) for repo in found[start:stop]], headers)

    def _api(self, path: str, raw_path: str, query: Mapping[str, Sequence[str]], token: str) -> None:
        name = "/".join(path.split("/")[:2])
        rest = [unquote(part) for part in raw_path.removeprefix("/api/models/").split("/")[2:]]
        repository = self._visible(name, token)
        if repository is None:
            return
        revision = rest[1] if len(rest) > 1 else "main"
        at = repository.files(revision)
        if at is None:
            self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        elif not rest or rest[0] == "revision":
            self._send_json(record(repository, revision, query, "siblings"))
        elif rest[0] == "tree":
            folder = "".join(f"{part}/" for part in rest[2:])
            self._send_json(
                list(tree(repository, at[1], folder, query.get("recursive", [""])[0].lower() in ("true", "1")))
            )
        elif rest[0] == "paths-info":
            self._send_json(
                [entry(repository, path, at[1][path]) for path in self._form.get("paths", ()) if path in at[1]]
            )
        elif rest[0] == "xet-read-token":
            expiry = str(int(time.time()) + 3600)
            headers = {
                "X-Xet-Cas-Url": self.server.hub.xet_endpoint,
                "X-Xet-Access-Token": "xet",
                "X-Xet-Token-Expiration": expiry,
            }
            self._send_json({"casUrl": self.server.hub.xet_endpoint, "accessToken": "xet", "exp": int(expiry)}, headers)
        else:
            self._refuse(404, "Not found")

    def _resolve(self, raw_path: str, token: str) -> None:
        hub = self.server.hub
        head, _, tail = raw_path.partition("/resolve/")
        raw_revision, _, raw_file = tail.partition("/")
        revision, name = unquote(raw_revision), unquote(raw_file)
        repository = self._visible(unquote(head).strip("/"), token)
        if repository is None:
            return
        at = repository.files(revision)
        if at is None:
            self._refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
            return
        commit, files = at
        headers = {"X-Repo-Commit": commit}
        if repository.gated and token not in repository.members:
            asks = "ask for access" if token else "have access to it and be authenticated to access it. Please log in"
            message = f"Access to model {repository.name} is restricted. You must {asks}."
            self._refuse(403 if token else 401, message, "GatedRepo", headers)
        elif name not in files:
            self._refuse(404, "Entry not found", "EntryNotFound", headers)
        elif files[name].lfs:
            file = files[name]
            headers |= {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(file.size)}
            headers |= {"Location": f"{hub.cdn}/{repository.name}/{commit}/{quote(name)}?Signature=secret"}
            if name in repository.xet:
                headers["X-Xet-Hash"] = repository.xet[name]
                headers["Link"] = (
                    f'<{hub.endpoint}/api/models/{repository.name}/xet-read-token/{commit}>; rel="xet-auth"'
                )
            self._send(302, b"", headers)
        else:
            self._send_file(files[name], headers | {"ETag": f'"{files[name].etag}"'})

    def _send_cdn(self, path: str) -> None:
        user, name, commit, *_ = path.lstrip("/").split("/")
        file = self.server.hub.repositories[f"{user}/{name}"].commits[commit][_cdn_name(path)]
        self._send_file(file, {"ETag": f'"{file.etag}"'})

    def _visible(self, name: str, token: str) -> Repository | None:
        repository = self.server.hub.repositories.get(name)
        if repository is None or (repository.private and not token):
            self._refuse(404 if token else 401, "Repository not found", "RepoNotFound")
            return None
        return repository

    def _refuse(self, status: int, message: str = "", code: str = "", headers: Mapping[str, str] | None = None) -> None:
        extra = {"X-Error-Code": code} if code else {}
        extra |= {"X-Error-Message": message} if message else {}
        self._send_json({"error": message}, extra | dict(headers or {}), status)

    def _send_json(self, answer: object, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self._send(status, json.dumps(answer).encode(), {"Content-Type": "application/json"} | dict(headers or {}))

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        changed = self._fault.headers if self._fault else {}
        for name, value in ({"Content-Length": str(len(body))} | dict(headers) | dict(changed)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_file(self, file: HubFile, headers: Mapping[str, str]) -> None:
        fault = self._fault or Fault("")
        start, end, status = 0, file.size, 200
        wanted = self.headers.get("Range", "").removeprefix("bytes=")
        headers = {"Accept-Ranges": "bytes"} | dict(headers)
        if wanted and not fault.ignore_range:
            first, _, last = wanted.partition("-")
            start = int(first) if first else max(file.size - int(last), 0)
            end = min(int(last) + 1, file.size) if first and last else file.size
            if start >= file.size:
                self._send(416, b"", headers | {"Content-Range": f"bytes */{file.size}"})
                return
            status = 206
            headers |= {"Content-Range": f"bytes {start}-{end - 1}/{file.size}"}
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(end - start + len(fault.extra))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(file, start, end, fault)

    def _send_body(self, file: HubFile, start: int, end: int, fault: Fault) -> None:
        if fault.stall_at is not None and start <= fault.stall_at < end:
            self._send_blocks(file, start, fault.stall_at, fault)
            self.server.hub.await_stalls()
            start = fault.stall_at
        if fault.cut_at is not None and start <= fault.cut_at < end:
            self._send_blocks(file, start, fault.cut_at, fault)
            self.close_connection = True
        else:
            self._send_blocks(file, start, end, fault)
            self.wfile.write(fault.extra)

    def _send_blocks(self, file: HubFile, start: int, stop: int, fault: Fault) -> None:
        block = _BLOCK if fault.bytes_per_s is None else max(1, fault.bytes_per_s // 20)
        for position in range(start, stop, block):
            data = bytearray(file.read(position, min(position + block, stop)))
            if fault.flip is not None and position <= fault.flip < position + len(data):
                data[fault.flip - position] ^= 0xFF
            self.wfile.write(data)
            if fault.bytes_per_s is not None:
                time.sleep(len(data) / fault.bytes_per_s)


def _cdn_name(path: str) -> str:
    """The file's name in a path of the CDN, USER/REPO/COMMIT/FILE, or of the hub, USER/REPO/resolve/REVISION/FILE."""
    parts = path.lstrip("/").split("/")
    return "/".join(parts[4:] if parts[2:3] == ["resolve"] else parts[3:])
