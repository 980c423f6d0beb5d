"""The variant that is a server with OpenAI's interface: llama-server, Ollama, vLLM. It is measured from outside."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from app.compare.endpoint import Endpoint, EndpointError
from app.compare.endpoint_request import EndpointRequest, RequestWriter
from app.compare.endpoint_stream import BadStream, StreamedAnswers, error_message
from app.compare.lanes import Answer, LaneMemory, OnText, RequestStopped, Started, Stopped, Times
from app.compare.words import Words
from engine.errors import EngineDied
from engine.messages import TextRequest
from engine.printable import one_line, quoted

SILENCE_S = 600
"""Seconds without a word, such as during a long prefill, after which a server counts as dead."""
_CONNECT_S = 10
_PATIENCE = 0.05
"""Seconds after which it is asked whether the user wants to stop."""
_LONGEST_REFUSAL = 2**20
"""Bytes of a body that is no answer; a list of models is one."""

_NOTICE = (
    "It is measured from outside, over HTTP, but for raw speed where it tells its times. Prompts are sent as text, so "
    "that their number of tokens is approximate where its vocabulary is another one. Its cache cannot be emptied: each "
    "round begins with other words."
)

_Result = TypeVar("_Result")


class EndpointVariant:
    """See lanes.Variant. Nothing is sent to anyone but the server, past proxies and without following redirects."""

    name = ""

    def __init__(self, endpoint: Endpoint, model_file: Path, silence_s: float = SILENCE_S) -> None:
        """model_file: in whose vocabulary the tokens of prompts are counted."""
        self._endpoint = endpoint
        self._model_file = model_file
        self._silence_s = silence_s
        self._tls: ssl.SSLContext | bool = ssl.create_default_context() if endpoint.base.startswith("https:") else True
        self._closed = threading.Event()
        self._writer: RequestWriter | None = None

    def start(self, on_loading: Callable[[float], object]) -> Started:
        """Ask which model answers. Raises EndpointError, or ModelFileError for a vocabulary without words."""
        self._closed.clear()
        words = Words.read(self._model_file)
        model = self._run(self._find_model(), lambda: False)
        self._writer = RequestWriter(model["id"], words)
        on_loading(1.0)
        owner, context = model.get("owned_by"), model.get("max_model_len")  # the latter is vLLM's
        return Started(
            one_line(owner) if isinstance(owner, str) and owner else "server",
            context if isinstance(context, int) else None,
            f"{quoted(model['id'])} on {self._endpoint.server}: {_NOTICE}",
        )

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        """A server that passes over `n` is asked for the other answers one by one. Raises EndpointError."""
        return self._run(self._ask(request, on_text), stopped)

    def memory(self) -> LaneMemory:
        """Nobody tells."""
        return LaneMemory(None, None, None, None)

    def forget(self) -> None:
        """Begin the next prompts with words that the server has not seen."""
        self._requests.forget()

    def quit_and_come_back(self) -> bool:
        """The server goes on running, with its cache."""
        return True

    def close(self) -> None:
        """Break off the request that runs."""
        self._closed.set()

    @property
    def _requests(self) -> RequestWriter:
        assert self._writer is not None, "not started"
        return self._writer

    def _run(self, work: Coroutine[Any, Any, _Result], stopped: Stopped) -> _Result:
        with _explained(self._endpoint.server):
            return asyncio.run(self._watched(work, stopped))

    async def _watched(self, work: Coroutine[Any, Any, _Result], stopped: Stopped) -> _Result:
        """Do the work; end it, and with it the connection, when the user wants to stop or the variant is closed."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await asyncio.wait([task], timeout=_PATIENCE)
            is_closed = self._closed.is_set()
            if not task.done() and (is_closed or stopped()):
                task.cancel()
                await asyncio.wait([task])
                raise EngineDied("The connection to the server was closed.") if is_closed else RequestStopped
        return task.result()

    async def _ask(self, request: TextRequest, on_text: OnText) -> Answer:
        async with self._client() as client:
            submitted = time.monotonic()
            rounds = [await self._stream(client, self._requests.write(request, n=request.n), on_text)]
            while (n_answers := sum(len(answers.texts) for answers in rounds)) < request.n:
                rounds.append(await self._stream(client, self._requests.write(request, n_answers), lambda _: None))
            ended = time.monotonic()
        return _answer(rounds, Times((rounds[0].first_at or ended) - submitted, ended - submitted))

    async def _stream(self, client: httpx2.AsyncClient, request: EndpointRequest, on_text: OnText) -> StreamedAnswers:
        answers = StreamedAnswers()
        async with self._response(client, "POST", request.path, request.body) as response:
            if not response.headers.get("content-type", "").startswith("text/event-stream"):
                refusal = _json_object(await _beginning(response))
                is_error = "error" in refusal
                raise BadStream(f"reports an error: {error_message(refusal)}" if is_error else "does not stream")
            async for event in httpx2.EventSource(response):
                text = answers.take(event.data, time.monotonic())
                if text:
                    on_text(text)
        if not answers.is_complete:
            raise BadStream("broke off in the middle of an answer")
        return answers

    async def _find_model(self) -> Mapping[str, Any]:
        """The server's entry of the model that was named, or of its only one."""
        server, wanted = self._endpoint.server, self._endpoint.model
        async with self._client() as client, self._response(client, "GET", "models") as response:
            entries = _json_object(await _beginning(response)).get("data")
        if not isinstance(entries, list) or not all(map(_is_model, entries)):
            raise EndpointError(f"{server} does not list its models as OpenAI's interface does: check the address.")
        if wanted:
            return next((entry for entry in entries if entry["id"] == wanted), {"id": wanted})
        if len(entries) != 1:
            names = ", ".join(one_line(entry["id"]) for entry in entries[:20])
            raise EndpointError(
                f"{server} has {len(entries)} models{': ' if names else ''}{names}; write #MODEL behind the address to "
                "name one."
            )
        return dict(entries[0])

    def _client(self) -> httpx2.AsyncClient:
        key = self._endpoint.api_key
        return httpx2.AsyncClient(
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx2.Timeout(self._silence_s, connect=_CONNECT_S),
            verify=self._tls,
            trust_env=False,  # proxies
        )

    @contextlib.asynccontextmanager
    async def _response(
        self, client: httpx2.AsyncClient, method: str, path: str, body: object = None
    ) -> AsyncIterator[httpx2.Response]:
        """A successful one. Raises EndpointError."""
        async with client.stream(method, f"{self._endpoint.base}/{path}", json=body) as response:
            if response.status_code != 200:
                raise _refusal(self._endpoint, path, response.status_code, _json_object(await _beginning(response)))
            yield response


def _answer(rounds: list[StreamedAnswers], user: Times) -> Answer:
    """The prompt's figures are those of the first round; the engine's times are told where there is one answer."""
    first = rounds[0]
    texts = tuple(text for answers in rounds for text in answers.texts)
    prefill, decode, prompt, reused = first.prefill_s, first.decode_s, first.prompt_tokens, first.reused_tokens
    engine = None
    if prefill is not None and decode is not None and len(texts) == 1:
        engine = Times(prefill, prefill + decode)
    return Answer(
        token_ids=(),
        texts=texts,
        generated_tokens=sum(answers.generated_tokens for answers in rounds),
        user=user,
        engine=engine,
        prefill_s=prefill,
        prompt_tokens=prompt,
        reused_tokens=reused,
        computed_tokens=prompt - reused if prompt is not None and reused is not None else None,
    )


def _refusal(endpoint: Endpoint, path: str, status: int, body: Mapping[str, Any]) -> EndpointError:
    """The server answered with an HTTP status that is no success."""
    server = endpoint.server
    if status in (401, 403):
        return EndpointError(
            f"{server} wants another API key (HTTP {status}): set OPENAI_BASE_URL to {one_line(endpoint.base)}, and "
            "OPENAI_API_KEY to a key of that server."
        )
    if status in (404, 405, 501) and not body:
        return EndpointError(f"{server} has no /{path} (HTTP {status}): this cannot be measured there.")
    detail = f", {one_line(error_message(body)).rstrip('.')}" if body else ""
    return EndpointError(f"{server} refuses the request (HTTP {status}{detail}): see its log.")


@contextlib.contextmanager
def _explained(server: str) -> Iterator[None]:
    """Turn what goes wrong on the way into EndpointError."""
    try:
        yield
    except BadStream as error:
        raise EndpointError(f"{server} {one_line(str(error)).rstrip('.')}: see the server's log.") from None
    except httpx2.ReadTimeout as error:
        seconds = error.request.extensions["timeout"]["read"]
        raise EndpointError(f"{server} was silent for {seconds:g} seconds: see its log.") from None
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        reason = f" ({one_line(str(error)).rstrip('.')})" if str(error) else ""
        raise EndpointError(f"No server answers at {server}{reason}: start it, or check the address.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        reason = f" ({one_line(str(error)).rstrip('.')})" if str(error) else ""
        raise EndpointError(f"The connection to {server} broke off{reason}: see the server's log.") from None


def _is_model(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id"), str)


async def _beginning(response: httpx2.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > _LONGEST_REFUSAL:
            break
    return body


def _json_object(body: bytes) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
