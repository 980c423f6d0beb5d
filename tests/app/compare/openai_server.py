"""A server on loopback with OpenAI's interface, which streams as llama-server, Ollama or vLLM do, and fails when told.

What it sends follows their sources: tools/server/server-task.cpp of llama.cpp, openai/openai.go of Ollama, and
vllm/entrypoints/openai of vLLM.
"""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Style(enum.Enum):
    LLAMA_SERVER = enum.auto()
    OLLAMA = enum.auto()
    VLLM = enum.auto()


class Received(NamedTuple):
    """A request as it arrived; header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class Behaviour:
    """How the server answers. status, refusal: instead of an answer. raw: the body of an answer instead of a stream.

    pieces: of each answer. cut_after: end the connection after so many events. events: data to send instead.
    stalls: wait before the first event until `OpenAiServer.go_on` is set.
    """

    style: Style = Style.LLAMA_SERVER
    models: Sequence[Mapping[str, Any]] = ({"id": "smollm", "object": "model"},)
    pieces: Sequence[str] = ("Hel", "lo", " \u2028wörld")
    prompt_tokens: int = 20
    cached_tokens: int = 5
    thoughts: str = ""
    status: int = 200
    refusal: bytes = b""
    raw: bytes | None = None
    content_type: str = "text/event-stream"
    cut_after: int | None = None
    events: Sequence[str] | None = None
    stalls: bool = False
    has_completions: bool = True


class OpenAiServer:
    """Use as a context manager. received: all requests so far."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.received: list[Received] = []
        self.go_on = threading.Event()
        self.broken_off = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> OpenAiServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def answered(self) -> list[Received]:
        """Requests for answers."""
        return [request for request in self.received if request.method == "POST"]


def _handler(server: OpenAiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.received.append(Received("GET", self.path, _lower(self.headers.items()), None))
            behaviour = server.behaviour
            if self.path != "/v1/models" or behaviour.status != 200:
                self._send(behaviour.status if behaviour.status != 200 else 404, behaviour.refusal)
                return
            body = {"object": "list", "data": list(behaviour.models)}
            self._send(200, json.dumps(body).encode() if behaviour.raw is None else behaviour.raw)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.received.append(Received("POST", self.path, _lower(self.headers.items()), body))
            behaviour = server.behaviour
            paths = ["/v1/chat/completions", *(["/v1/completions"] if behaviour.has_completions else [])]
            if self.path not in paths or behaviour.status != 200:
                self._send(behaviour.status if behaviour.status != 200 else 404, behaviour.refusal)
            elif behaviour.raw is not None:
                self._send(200, behaviour.raw, behaviour.content_type)
            else:
                self._stream(body)

        def _stream(self, body: Mapping[str, Any]) -> None:
            behaviour = server.behaviour
            self.send_response(200)
            self.send_header("Content-Type", behaviour.content_type)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")
            self.end_headers()
            if behaviour.stalls and not server.go_on.wait(10):
                return
            events = behaviour.events or list(_events(behaviour, body, is_chat="chat" in self.path))
            try:
                for event in events[: behaviour.cut_after]:
                    self._chunk(f"data: {event}\n\n".encode())
            except OSError:
                server.broken_off.set()
                return
            if behaviour.cut_after is None:
                self._chunk(b"")
            self.close_connection = True

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def _send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:1/v1/models")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _events(behaviour: Behaviour, body: Mapping[str, Any], *, is_chat: bool) -> Iterator[str]:
    """What each server sends, as JSON, ending in [DONE]."""
    style = behaviour.style
    n = body.get("n", 1) if style is not Style.OLLAMA else 1
    n_tokens = len(behaviour.pieces)
    usage: dict[str, Any] = {
        "prompt_tokens": behaviour.prompt_tokens,
        "completion_tokens": n_tokens,
        "total_tokens": behaviour.prompt_tokens + n_tokens,
    }
    if style is Style.LLAMA_SERVER:
        usage["prompt_tokens_details"] = {"cached_tokens": behaviour.cached_tokens}
    timings = {
        "cache_n": behaviour.cached_tokens,
        "prompt_n": behaviour.prompt_tokens - behaviour.cached_tokens,
        "prompt_ms": 250.0,
        "predicted_n": n_tokens,
        "predicted_ms": 500.0,
    }

    def event(index: int, text: str | None, finish: str | None = None, **more: Any) -> str:
        name = "reasoning_content" if style is Style.LLAMA_SERVER else "reasoning"
        delta: dict[str, Any] = {} if text is None else {"content": text}
        if text is not None and text == behaviour.thoughts:
            delta = {name: text}
        shown = {"delta": delta} if is_chat else {"text": text or ""}
        return json.dumps({"choices": [{"index": index, "finish_reason": finish, **shown}], **more}, ensure_ascii=False)

    if is_chat:
        content = None if style is Style.LLAMA_SERVER else ""
        for index in range(n):
            yield json.dumps({"choices": [{"index": index, "delta": {"role": "assistant", "content": content}}]})
    for piece in [*([behaviour.thoughts] if behaviour.thoughts else []), *behaviour.pieces]:
        for index in range(n):
            yield event(index, piece, usage=None) if style is Style.VLLM else event(index, piece)
    for index in range(n):
        last = index == n - 1
        if style is Style.LLAMA_SERVER and is_chat:
            yield event(index, None, "length")
            yield json.dumps({"choices": [], "usage": usage, "timings": timings})
        elif style is Style.LLAMA_SERVER:
            yield event(index, "", "length", usage=usage, timings=timings)
        else:
            yield event(index, "", "length")
            if last:
                total = usage | {"completion_tokens": n * n_tokens}
                yield json.dumps({"choices": [], "usage": total})
    yield "[DONE]"
