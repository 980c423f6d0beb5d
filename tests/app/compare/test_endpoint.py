"""Addresses of servers, and who gets the key."""

from __future__ import annotations

import pytest

from app.compare.endpoint import Endpoint, EndpointError


@pytest.mark.parametrize(
    ("text", "base", "model"),
    [
        ("http://localhost:8080", "http://localhost:8080/v1", ""),
        ("localhost:11434#llama3.2:1b", "http://localhost:11434/v1", "llama3.2:1b"),
        ("https://api.example.org/openai/v1/", "https://api.example.org/openai/v1", ""),
        ("http://[::1]:8000/v1#a/b", "http://[::1]:8000/v1", "a/b"),
        ("box", "http://box/v1", ""),
    ],
)
def test_addresses(text: str, base: str, model: str) -> None:
    assert Endpoint.parse(text, {}) == Endpoint(base, model)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#model",
        "ftp://host",
        "http://",
        "http://host:port",
        "host:70000",
        "u:p@host",
        "http://h/v1?key=1",
        "http://[x",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(EndpointError, match="is no address of a server: write http://HOST:PORT"):
        Endpoint.parse(text, {})


@pytest.mark.parametrize(
    ("base_url", "address", "gets_key"),
    [
        ("http://box:8000/v1", "box:8000#m", True),
        ("https://box/v1", "https://box:443", True),
        ("http://box:8000/v1", "https://box:8000", False),
        ("http://box:8000/v1", "box:8001", False),
        ("", "localhost:8080", False),
        ("", "https://api.openai.com/v1", True),
        ("", "https://api.openai.com.example.org", False),
    ],
)
def test_a_key_goes_only_to_the_server_it_is_for(base_url: str, address: str, gets_key: bool) -> None:
    environment = {"OPENAI_API_KEY": "secret", "OPENAI_BASE_URL": base_url}
    endpoint = Endpoint.parse(address, environment)
    assert endpoint.api_key == ("secret" if gets_key else "")
    assert "secret" not in repr(endpoint)
