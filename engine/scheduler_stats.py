"""What a scheduler tells about itself."""

from __future__ import annotations

from typing import NamedTuple


class SchedulerStats(NamedTuple):
    """State and history of a scheduler. Blocks are summed over KV groups; tokens and events since the start.

    reused/computed: prompt tokens found in the prefix cache / run. recomputed: tokens run again after a
    preemption, in no other figure. drafted/accepted: draft tokens verified / that became tokens of an answer.
    """

    n_running: int
    n_waiting: int
    blocks_total: int
    blocks_used: int
    blocks_cached: int
    reused_tokens: int
    computed_tokens: int
    recomputed_tokens: int
    evictions: int
    preemptions: int
    drafted_tokens: int
    accepted_tokens: int
