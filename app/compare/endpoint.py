"""Where a server with OpenAI's interface is, which of its models answers, and whether it gets a key."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from engine.errors import OctavoError
from engine.printable import one_line, quoted

_PORTS = {"http": 80, "https": 443}


class EndpointError(OctavoError):
    """An address that is none, or a server that does not answer as OpenAI's interface does."""


@dataclass(frozen=True)
class Endpoint:
    """base: such as "http://localhost:8080/v1". model: its name there, "" for the only one. api_key: "" for none."""

    base: str
    model: str = ""
    api_key: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str, environment: Mapping[str, str] = os.environ) -> Endpoint:
        """Read "URL" or "URL#MODEL"; http:// and /v1 may be left out.

        As in OpenAI's own client, OPENAI_API_KEY belongs to the server that OPENAI_BASE_URL names, or to
        https://api.openai.com: no other gets it. Raises EndpointError.
        """
        address, _, model = text.partition("#")
        url = _split(address)
        path = url.path.rstrip("/")
        base = f"{url.scheme}://{url.netloc}{path if path.endswith('/v1') else path + '/v1'}"
        key_is_for = environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        api_key = environment.get("OPENAI_API_KEY", "") if _host(_split(key_is_for)) == _host(url) else ""
        return cls(base, model, api_key)

    @property
    def server(self) -> str:
        """Host and port, for use inside a sentence."""
        return one_line(urlsplit(self.base).netloc)


def _split(text: str) -> SplitResult:
    with contextlib.suppress(ValueError):  # a port that is no number, a bracket that is not closed
        url = urlsplit(text if "://" in text else "http://" + text)
        if url.scheme in _PORTS and url.hostname and url.port != 0 and url.username is None and not url.query:
            return url
    raise EndpointError(
        f"{quoted(text)} is no address of a server: write http://HOST:PORT, and #MODEL behind it to name a model."
    )


def _host(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or _PORTS[url.scheme]
