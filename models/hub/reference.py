"""Names of models on the hub, in every way that users write and paste them."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from engine.printable import quoted
from models.errors import ReferenceFormatError

_SHORT = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@:\s]+))?(?::(?P<variant>\S.*))?", re.ASCII)
_PAGES = ("resolve", "blob", "raw", "tree")
_OTHER_KINDS = ("datasets", "spaces", "kernels", "buckets", "collections", "papers", "api")


class HubReference(NamedTuple):
    """A model on the hub, as far as the user has said which.

    repository: "user/name". variant: a quantization ("Q4_K_M") or the name of a file, in any case; None is not said.
    revision: a branch, a tag or a commit; None is the main branch.
    """

    repository: str
    variant: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        """As the user would type it; `parse_reference` reads it back."""
        revision = f"@{self.revision}" if self.revision else ""
        return self.repository + revision + (f":{self.variant}" if self.variant else "")


def parse_reference(text: str, revision: str | None = None) -> HubReference:
    """Read user/repo, user/repo:QUANT, the same after hf.co/, or the address of a repository or a file on the hub.

    revision: what was asked for beside the text. Raises ReferenceFormatError.
    """
    text = text.strip()
    host = text.split("/", maxsplit=1)[0].lower()
    if "://" in text:
        reference = _from_address(text)
    elif host in (*constants.HF_URL_HOSTS, urlsplit(constants.ENDPOINT).netloc.lower()):
        reference = _from_address(f"https://{text}")
    else:
        reference = _from_short(text, text)
    if revision and reference.revision and revision != reference.revision:
        raise ReferenceFormatError(
            f"{quoted(text)} names the revision {quoted(reference.revision)}, and --revision {quoted(revision)}: "
            "drop one of them."
        )
    return reference._replace(revision=_unless_main(revision or reference.revision))


def _from_short(short: str, text: str) -> HubReference:
    match = _SHORT.fullmatch(short)
    if not match:
        raise ReferenceFormatError(
            f"{quoted(text)} does not name a model on the hub: write user/repo, user/repo:QUANT or the address of a "
            "file; 'octavo search' finds repositories by words, and 'octavo import' takes files that you have."
        )
    try:
        validate_repo_id(match["repo"])
    except HFValidationError:
        raise ReferenceFormatError(
            f"{quoted(match['repo'])} cannot be the name of a repository on the hub: check how it is written."
        ) from None
    return HubReference(match["repo"], match["variant"], match["revision"])


def _from_address(text: str) -> HubReference:
    try:
        address = urlsplit(text)
        host = (address.hostname or "").lower()
    except ValueError:  # such as a host in brackets that is no IPv6 address
        raise ReferenceFormatError(f"{quoted(text)} is not an address: check how it is written.") from None
    hub = urlsplit(constants.ENDPOINT)  # HF_ENDPOINT, which may have a path of its own
    hosts = (*constants.HF_URL_HOSTS, "www.huggingface.co", hub.hostname)
    if address.scheme.lower() not in ("http", "https") or host not in hosts:
        raise ReferenceFormatError(
            f"{quoted(text)} is not on the hub ({hub.netloc}): download the file, then 'octavo import' takes it."
        )
    path = address.path.removeprefix(hub.path) if host == hub.hostname else address.path
    parts = [unquote(part) for part in path.split("/") if part]
    if not parts or parts[0] in _OTHER_KINDS:
        raise ReferenceFormatError(
            f"{quoted(text)} is not the address of a model: give that of its repository or file."
        )
    if len(parts) < 4 or parts[2] not in _PAGES:
        return _from_short("/".join(parts), text)
    n_revision = 3 if parts[3] == "refs" else 1  # refs/pr/1, with its slashes not escaped
    revision = "/".join(parts[3 : 3 + n_revision])
    variant = "/".join(parts[3 + n_revision :]) or None
    return _from_short("/".join(parts[:2]), text)._replace(variant=variant, revision=_unless_main(revision))


def _unless_main(revision: str | None) -> str | None:
    """None for the branch that is meant when nothing is said, so that one model has one name."""
    return None if revision == constants.DEFAULT_REVISION else revision
