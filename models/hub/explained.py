"""What goes wrong between here and the hub, each in one sentence."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import ssl
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import httpx2
from huggingface_hub import constants, get_session, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
    RevisionResolutionError,
)
from huggingface_hub.utils import logging

from engine.printable import one_line, quoted
from models.errors import DownloadError, HubError
from models.hub.patience import asked_pause

_TOKEN = "HF_TOKEN, or the token that 'hf auth login' saved"


class StrangeAnswer(Exception):
    """What came is no refusal, and not of the form that the hub's answers have."""


@contextlib.contextmanager
def explained(reference: str) -> Iterator[None]:
    """Turn what huggingface_hub, the network and the cache's disk raise into HubError or DownloadError.

    reference: what was asked for, as the user wrote it; "user/repo" at its beginning names the repository. Within,
    huggingface_hub writes nothing to the terminal and sends no statistics.
    """
    _keep_quiet()
    _open_session()
    try:
        _check_token()
        yield
    except _HUB_ERRORS as error:
        raise HubError(_sentence(_cause(error), reference)) from None
    except OSError as error:  # after those of the hub, some of which are OSErrors too
        where = f" {quoted(str(error.filename))}" if error.filename else ""
        raise DownloadError(
            f"The hub's cache{where} cannot be used ({error.strerror or error}): see that you may write there, or set "
            "HF_HOME to another folder."
        ) from None


_HUB_ERRORS = (
    *(httpx2.HTTPError, httpx2.InvalidURL, OfflineModeIsEnabled, EntryNotFoundError, FileMetadataError),
    *(HFValidationError, RevisionResolutionError, StrangeAnswer, json.JSONDecodeError),
)


@functools.cache
def _keep_quiet() -> None:
    """Its log would break progress bars and say again what our errors say. Who set its variables still gets it."""
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # read by hf_xet
    constants.HF_HUB_DISABLE_TELEMETRY = True
    constants.HF_HUB_DISABLE_SYMLINKS_WARNING = True
    if not (os.environ.get("HF_HUB_VERBOSITY") or constants.HF_DEBUG):
        logging.set_verbosity(logging.CRITICAL)


def _open_session() -> None:
    """Make huggingface_hub's HTTP client, if it is not made yet: that reads the variables for proxies."""
    try:
        get_session()
    except (ValueError, ImportError) as error:  # an address of another kind; SOCKS without its package
        raise HubError(
            f"The proxy that HTTPS_PROXY, HTTP_PROXY or ALL_PROXY names cannot be used ({one_line(str(error))}): "
            "correct the variable, or unset it."
        ) from None


def _check_token() -> None:
    """Refuse what cannot be sent, as tokens are sent in a header. Raises OSError if its file cannot be read."""
    token = get_token() or ""
    if not (token.isascii() and token.isprintable()):
        raise HubError(f"{_TOKEN}, has characters that no token has: correct it, or remove it for public models.")


def _cause(error: Exception) -> Exception:
    """The first failure, where huggingface_hub wraps it in one that only says that the cache has nothing either."""
    wrapped = isinstance(error, LocalEntryNotFoundError | RevisionResolutionError)
    return error.__cause__ if wrapped and isinstance(error.__cause__, Exception) else error


def _sentence(error: Exception, reference: str) -> str:
    if isinstance(error, HfHubHTTPError):
        return _refusal(error, "/".join(reference.split(":", 1)[0].split("@", 1)[0].split("/")[:2]))
    if isinstance(error, OfflineModeIsEnabled | EntryNotFoundError | RevisionResolutionError):
        return f"{quoted(reference)} is not in the cache, and HF_HUB_OFFLINE keeps Octavo off the network: unset it."
    if isinstance(error, HFValidationError):
        return f"{quoted(reference)} cannot be the name of a repository on the hub: check how it is written."
    if isinstance(error, httpx2.TransportError | httpx2.InvalidURL):
        return _unreachable(error)
    return (
        f"What answers at {_endpoint()} is not the hub: check HF_ENDPOINT, and whether this network wants you to log "
        "in, or lets you through only by a proxy."
    )


def _refusal(error: HfHubHTTPError, repository: str) -> str:
    """The hub answered, with an HTTP status that is no success."""
    status = error.response.status_code
    has_token = "authorization" in error.response.request.headers
    page = f"{_endpoint()}/{one_line(repository)}"
    if isinstance(error, GatedRepoError):
        if has_token:
            return f"{quoted(repository)} is gated, and your token is not let in: ask for access at {page}."
        return (
            f"{quoted(repository)} is gated: ask for access at {page}, then set HF_TOKEN to a token made at "
            f"{_endpoint()}/settings/tokens."
        )
    if isinstance(error, RepositoryNotFoundError):
        if has_token:
            return f"The hub has no repository {quoted(repository)}, or hides it from your token: check the name."
        return (
            f"The hub has no repository {quoted(repository)}, or it is private: check the name, or set HF_TOKEN to a "
            "token that may read it."
        )
    if isinstance(error, RevisionNotFoundError):
        return f"{quoted(repository)} has no such branch, tag or commit: check --revision, or leave it out."
    if isinstance(error, EntryNotFoundError):
        name = unquote(urlsplit(str(error.response.request.url)).path.partition("/resolve/")[2].partition("/")[2])
        return f"{quoted(repository)} has no file {quoted(name)}: see which there are at {page}/tree/main."
    if status == 401:
        return f"The hub does not accept your token: correct {_TOKEN}, or remove it for models that are public."
    if status == 429:
        pause = asked_pause(error)
        when = f"in {pause} seconds" if pause else "in some minutes"
        more = "" if has_token else "; with HF_TOKEN set, more is allowed"
        return f"The hub answers no more for now, because too much was asked of it: run this again {when}{more}."
    if status >= 500:
        return f"The hub has a failure of its own (HTTP {status}): run this again in some minutes."
    detail = f", {one_line(error.server_message)}" if error.server_message else ""
    return f"The hub refuses what was asked of {quoted(repository)} (HTTP {status}{detail}): check your token's rights."


def _unreachable(error: Exception) -> str:
    """There was no whole answer."""
    reasons = list(_chain(error))
    text = str(error)
    if isinstance(error, httpx2.ProxyError):
        return f"The proxy refuses or does not answer ({one_line(text)}): check HTTPS_PROXY and HTTP_PROXY."
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return f"HF_ENDPOINT, {quoted(_endpoint())}, is not an address: it begins with https:// and a host's name."
    if any(isinstance(reason, ssl.SSLCertVerificationError) for reason in reasons) or "CERTIFICATE_VERIFY" in text:
        return (
            f"The certificate of {_host()} cannot be verified: check this machine's clock; where a proxy reads along, "
            "set SSL_CERT_FILE to its certificate."
        )
    if isinstance(error, httpx2.TimeoutException):
        return f"{_host()} does not answer in time: check the network, then run this again; downloads resume."
    if isinstance(error, httpx2.ConnectError):
        return f"{_host()} cannot be reached ({one_line(text)}): check the network, and HF_ENDPOINT if you have set it."
    return f"The connection to {_host()} broke off: run this again; downloads resume where they stopped."


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _endpoint() -> str:
    return one_line(constants.ENDPOINT)


def _host() -> str:
    return one_line(urlsplit(constants.ENDPOINT).netloc or constants.ENDPOINT)
