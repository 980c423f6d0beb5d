"""How often something is asked of the hub again, and after what pauses."""

from __future__ import annotations

from time import sleep

import httpx2
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import parse_ratelimit_headers

PAUSES_S = (1, 2, 4, 8, 8)
"""Before the second attempt, the third … One more failure is final."""
_LONGEST_S = 300
"""The hub counts requests over five minutes; nobody should wait longer without being told."""
_PASSING_STATUS = (408, 429, 500, 502, 503, 504)
_PASSING = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)


class Patience:
    """The attempts at one thing."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Something came: what follows is a first attempt again."""
        self._pauses = iter(PAUSES_S)

    def wait(self, error: Exception) -> None:
        """Sleep before the next attempt, at least as long as the hub asks; raise `error` where no other is due."""
        pause = next(self._pauses, None)
        asked = asked_pause(error)
        if pause is None or asked > _LONGEST_S or not _passes(error):
            raise error
        sleep(max(pause, asked))


def asked_pause(error: Exception) -> int:
    """Seconds that a refusal asks to wait, in Retry-After (RFC 9110) or the hub's RateLimit; 0 if it does not."""
    if not isinstance(error, HfHubHTTPError):
        return 0
    limit = parse_ratelimit_headers(error.response.headers)
    if limit and limit.remaining == 0:
        return limit.reset_in_seconds
    text = error.response.headers.get("Retry-After", "").strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def _passes(error: Exception) -> bool:
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _PASSING_STATUS
    return isinstance(error, _PASSING)
