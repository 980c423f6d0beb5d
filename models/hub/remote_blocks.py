"""The bytes of a file on the hub from some position on, by HTTP or by xet."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import threading
import time
from collections.abc import Generator, Iterator
from queue import Empty, Full, Queue
from typing import NamedTuple
from urllib.parse import urlsplit

from huggingface_hub import HfFileMetadata, constants, get_session, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers

_XET_RETRIES = 2
"""Of each request, over some seconds. hf_xet's own five would take minutes before HTTP is tried."""
_XET_SILENCE_S = 120
_XET_GLANCE_S = 0.5
_XET_AHEAD = 4
"""Blocks that wait to be written. hf_xet has a buffer of its own."""


class Block(NamedTuple):
    """Some bytes of the file. position: of the first of them; 0 again where the server sends the file anew."""

    position: int
    content: bytes


class XetError(Exception):
    """hf_xet gave up. What it had yielded was right, and HTTP can continue."""


def uses_xet(metadata: HfFileMetadata) -> bool:
    """Whether the file is to come by xet; HF_HUB_DISABLE_XET switches that off."""
    is_installed = importlib.util.find_spec("hf_xet") is not None
    return metadata.xet_file_data is not None and is_installed and not constants.HF_HUB_DISABLE_XET


def http_blocks(metadata: HfFileMetadata, position: int) -> Generator[Block]:
    """As the network delivers them. Raises what httpx2 does, and HfHubHTTPError."""
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    if not _may_see_token(metadata.location):
        headers.pop("authorization", None)
    if position:
        headers["Range"] = f"bytes={position}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", metadata.location, headers=headers, timeout=timeout) as response:
        hf_raise_for_status(response)
        if response.status_code != 206:
            position = 0
        for content in response.iter_raw():
            yield Block(position, content)
            position += len(content)


def xet_blocks(metadata: HfFileMetadata, position: int) -> Generator[Block]:
    """From xet's storage, which fetches chunks in parallel and checks each. Raises XetError.

    hf_xet waits for the network deaf to signals, so it does that in a thread, and Ctrl-C finds this one listening.
    """
    arrived: Queue[bytes | Exception | None] = Queue(_XET_AHEAD)
    is_over = threading.Event()
    thread = threading.Thread(target=_read_xet, args=(metadata, position, arrived, is_over), daemon=True)
    thread.start()
    try:
        while (content := _next(arrived)) is not None:
            yield Block(position, content)
            position += len(content)
    finally:
        is_over.set()


def _next(arrived: Queue[bytes | Exception | None]) -> bytes | None:
    """What comes next out of the queue, an exception as XetError. The wait is in steps, for Ctrl-C on Windows."""
    give_up = time.monotonic() + _XET_SILENCE_S
    while time.monotonic() < give_up:
        try:
            item = arrived.get(timeout=_XET_GLANCE_S)
        except Empty:
            continue
        if isinstance(item, Exception):
            raise XetError(str(item))
        return item
    raise XetError("Nothing came for a long time.")


def _read_xet(
    metadata: HfFileMetadata, position: int, arrived: Queue[bytes | Exception | None], is_over: threading.Event
) -> None:
    """Put the file's bytes into the queue, then None, or an exception in its place, until `is_over` is set."""

    def put(item: bytes | Exception | None) -> None:
        while not is_over.is_set():
            with contextlib.suppress(Full):
                arrived.put(item, timeout=_XET_GLANCE_S)
                return

    try:
        for content in _xet_stream(metadata, position):
            put(content)
            if is_over.is_set():
                return
        put(None)
    except Exception as error:  # RuntimeError, OSError …: hf_xet documents none
        put(error)


def _xet_stream(metadata: HfFileMetadata, position: int) -> Iterator[bytes]:
    assert metadata.xet_file_data is not None
    hf_xet = importlib.import_module("hf_xet")
    headers = build_hf_headers()
    session = hf_xet.XetSession(hf_xet.XetConfig().with_config("client.retry_max_attempts", _XET_RETRIES))
    with session.new_download_stream_group(
        token_refresh_url=metadata.xet_file_data.refresh_route,
        token_refresh_headers=headers,
        custom_headers={"user-agent": headers["user-agent"]},
    ) as group:
        info = hf_xet.XetFileInfo(metadata.xet_file_data.file_hash, metadata.size)
        yield from group.download_stream(info, start=position)


def _may_see_token(address: str) -> bool:
    """Whether it is the hub's own, and not that of the storage that the hub sends us to with a signed address."""
    there, hub = urlsplit(address), urlsplit(constants.ENDPOINT)
    is_endpoint = (there.scheme, there.netloc) == (hub.scheme, hub.netloc)
    return is_endpoint or (there.scheme == "https" and there.hostname in constants.HF_URL_HOSTS)
