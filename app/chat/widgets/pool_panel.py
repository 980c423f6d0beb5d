"""The KV pool, live: a map of its blocks by whose they are, and what sharing them is worth."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.chat.wording.pool_map import BlockKind, blocks_per_cell, cells_of, kinds_of
from engine.printable import one_line
from engine.scheduler_stats import SchedulerStats
from engine.sequence import KvStats
from engine.survey import PoolSurvey, SurveyedSequence
from engine.units import format_bytes

_STYLES = {
    BlockKind.OURS: "$primary",
    BlockKind.OTHERS: "$secondary",
    BlockKind.SHARED: "$accent",
    BlockKind.CACHED_OURS: "$primary-lighten-1",
    BlockKind.CACHED_OTHERS: "$secondary-lighten-1",
    BlockKind.FREE: "$foreground-muted",
}
_LEGEND = {
    BlockKind.OURS: "in use by this chat",
    BlockKind.OTHERS: "in use by other chats",
    BlockKind.SHARED: "shared by several chats",
    BlockKind.CACHED_OURS: "cached, of this chat",
    BlockKind.CACHED_OTHERS: "cached, of other chats",
    BlockKind.FREE: "free",
}
_LEAST_ROWS, _OTHER_ROWS = 4, 24
"""Of the map, and of everything else that is worth seeing without scrolling."""
_NO_MAP = (
    "This is the contiguous engine, llama.cpp's own: it reserves the memory of the whole window when it starts, for "
    "one chat at a time, so there are no blocks to show."
)


class PoolPanel(VerticalScroll, can_focus=False):
    """What the last survey has found, seen from the chat on the screen."""

    def __init__(self) -> None:
        super().__init__(id="pool")

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static("No model is loaded.", id="pool-text", markup=False)

    def show(self, survey: PoolSurvey, chat_id: int, titles: Mapping[int, str]) -> None:
        """titles: of chats by their ids, as far as they are known."""
        size = self.scrollable_content_region.size
        text = pool_text(survey, chat_id, titles, max(16, size.width), max(_LEAST_ROWS, size.height - _OTHER_ROWS))
        self.query_one("#pool-text", Static).update(text)


def pool_text(survey: PoolSurvey, chat_id: int, titles: Mapping[int, str], width: int, map_rows: int) -> Content:
    """All that there is to say about a survey, in lines of at most so many cells, so many of them for the map."""
    parts = [Content.styled("KV pool", "bold")]
    if survey.states:
        parts += [*_map(kinds_of(survey, chat_id), width, map_rows, survey.kv.block_size), Content("")]
    else:
        parts += [Content(_NO_MAP), Content("")]
    parts += _memory(survey.kv)
    if survey.stats is not None:
        parts += [Content(""), *_history(survey.stats)]
    if survey.sequences:
        parts += [Content(""), *_sequences(survey.sequences, chat_id, titles)]
    return Content("\n").join(parts)


def _map(kinds: Sequence[BlockKind], width: int, n_rows: int, block_size: int) -> list[Content]:
    per_cell = blocks_per_cell(len(kinds), width * n_rows)
    cells = cells_of(kinds, per_cell)
    rows = [cells[start : start + width] for start in range(0, len(cells), width)]
    counts = Counter(kinds)
    scale = f", {per_cell} a cell" if per_cell > 1 else ""
    legend = [
        Content.assemble((kind.value, _STYLES[kind]), f" {counts[kind]:>6,} ", (words, "$foreground-muted"))
        for kind, words in _LEGEND.items()
    ]
    return [
        Content.styled(f"{len(kinds):,} blocks of {block_size} tokens{scale}", "$foreground-muted"),
        *map(_row, rows),
        Content(""),
        *legend,
    ]


def _row(cells: Sequence[BlockKind]) -> Content:
    stretches = ((kind, len(list(same))) for kind, same in itertools.groupby(cells))
    return Content("").join(Content.styled(kind.value * n, _STYLES[kind]) for kind, n in stretches)


def _memory(kv: KvStats) -> list[Content]:
    saved = kv.bytes_contiguous_would_reserve - kv.bytes_resident
    lines = [
        _line("in use now", format_bytes(kv.bytes_used)),
        _line("held in memory", format_bytes(kv.bytes_resident)),
        _line("contiguous cache", format_bytes(kv.bytes_contiguous_would_reserve)),
    ]
    return [*lines, _line("saved", format_bytes(saved))] if saved > 0 else lines


def _history(stats: SchedulerStats) -> list[Content]:
    asked = stats.reused_tokens + stats.computed_tokens
    lines = [_line("hit rate", f"{stats.reused_tokens / asked:.0%}" if asked else "nothing asked yet")]
    lines.append(_line("reused / computed", f"{stats.reused_tokens:,} / {stats.computed_tokens:,}"))
    lines.append(_line("evictions", f"{stats.evictions:,}"))
    lines.append(_line("preemptions", f"{stats.preemptions:,}"))
    lines.append(_line("drafts accepted", f"{stats.accepted_tokens:,} of {stats.drafted_tokens:,}"))
    return lines


def _sequences(sequences: Sequence[SurveyedSequence], chat_id: int, titles: Mapping[int, str]) -> list[Content]:
    lines = [Content.styled("Running", "bold")]
    for one in sequences:
        name = "this chat" if one.owner == chat_id else one_line(titles.get(one.owner, "another chat"))[:24]
        size = f"{one.n_tokens:,} tokens, {counted(one.n_blocks, 'block')} in {counted(one.n_runs, 'run')}"
        lines.append(Content.assemble(name, "\n  ", (size, "$foreground-muted")))
    return lines


def counted(n: int, what: str) -> str:
    """A number of things: "1 block", "2 blocks"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _line(name: str, value: str) -> Content:
    return Content.assemble((f"{name:<18} ", "$foreground-muted"), value)
