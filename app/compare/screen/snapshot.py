"""What was measured up to a moment, as the widgets draw it."""

from __future__ import annotations

from dataclasses import dataclass

from app.compare.conclusion import conclusion
from app.compare.lanes import LaneMemory
from app.compare.record import LaneError, Record
from app.compare.results import Results, results_of


@dataclass(frozen=True)
class Snapshot:
    """memories: of each lane after its latest step. conclusion: one sentence, of what there is so far."""

    results: Results
    memories: dict[str, LaneMemory]
    errors: tuple[LaneError, ...]
    conclusion: str


def snapshot_of(record: Record) -> Snapshot:
    """Takes some milliseconds."""
    results = results_of(record)
    memories = {sample.lane: sample.memory for sample in record.session if sample.memory is not None}
    return Snapshot(results, memories, tuple(record.errors), conclusion(results, record.lanes[0]))
