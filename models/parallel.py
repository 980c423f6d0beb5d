"""The same done for several things at once, where each waits for the network most of the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

_AT_ONCE = 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
    """What `work` returns for each of `items`, in their order. Raises what it raises first.

    The threads are daemons, so that Ctrl-C need not wait for an answer.
    """
    results: dict[int, _Result] = {}
    failures: list[Exception] = []
    waiting: SimpleQueue[int] = SimpleQueue()
    for index in range(len(items)):
        waiting.put(index)

    def run() -> None:
        while not failures:
            try:
                index = waiting.get_nowait()
            except Empty:
                return
            try:
                results[index] = work(items[index])
            except Exception as error:  # raised again where it is listened to
                failures.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(_AT_ONCE, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(items))]
