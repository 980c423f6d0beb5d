"""The process that decodes batches, at the other end of app/compare/batch_lane.py."""

from __future__ import annotations

import queue
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from app.compare.batch_messages import BatchFailed, BatchLoad, BatchLoaded, BatchTime
from app.compare.lanes import BatchTest
from engine.child import prepare_child
from engine.config import EngineKind
from engine.errors import EngineDied, OctavoError
from engine.messages import Loading

if TYPE_CHECKING:
    from app.compare.batch_engines import BatchEngine

    Parent = Connection[Loading | BatchLoaded | BatchTime | BatchFailed, BatchLoad | BatchTest]


def main(descriptor: int) -> None:
    """Serve the process that holds the other end of the connection, until that process is gone."""
    parent: Parent = Connection(descriptor)
    messages: queue.SimpleQueue[BatchLoad | BatchTest] = queue.SimpleQueue()
    prepare_child(parent, messages.put)
    try:
        _serve(parent, messages)
    except OctavoError as error:
        parent.send(BatchFailed(error))
    except Exception as error:
        summary = traceback.format_exception_only(error)[-1].strip().partition("\n")[0]
        died = EngineDied(f"The engine failed on a defect of its own ({summary}).")
        died.add_note(traceback.format_exc())
        parent.send(BatchFailed(died))


def _serve(parent: Parent, messages: queue.SimpleQueue[BatchLoad | BatchTest]) -> None:
    load = messages.get()
    assert isinstance(load, BatchLoad)
    engine = _load(load, lambda fraction: parent.send(Loading(fraction)))
    parent.send(BatchLoaded())
    while True:
        test = messages.get()
        assert isinstance(test, BatchTest)
        engine.begin(test)
        start = time.perf_counter()
        engine.finish()
        parent.send(BatchTime(time.perf_counter() - start))


def _load(load: BatchLoad, progress: Callable[[float], None]) -> BatchEngine:
    from app.compare.batch_engines import LlamaCppBatch, PagedBatch  # noqa: PLC0415 - native code, after prepare_child

    if load.config.kind is EngineKind.PAGED:
        return PagedBatch(load.path, load.config, progress)
    return LlamaCppBatch(load.path, load.config, progress, n_sequences=load.n_sequences, unified=load.unified)
