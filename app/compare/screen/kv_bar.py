"""The KV memory of a lane as a row of blocks; all lanes have the same scale."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content
from textual.widget import Widget

from app.compare.lanes import LaneMemory
from engine.units import format_bytes

USED, RESERVED, RESIDENT, NOTHING = "█", "▒", "░", "·"
_LABEL, _SHORT_LABEL = "KV memory ", "KV "
_NARROW = 50
_LEAST = 8
"""Cells of a bar."""


def scale_of(memories: Iterable[LaneMemory | None]) -> int:
    """Bytes of a whole row: the most that any lane holds or keeps from others."""
    return max((_most(memory) for memory in memories if memory is not None), default=0)


def cells_of(memory: LaneMemory, scale: int, width: int) -> str:
    """`width` cells: what holds tokens, what is set aside for more, what is in memory beyond that, and nothing."""
    used, reserved, resident = (_cells(n, scale, width) for n in memory[:3])
    reserved = max(used, reserved)
    most = max(reserved, resident)
    return USED * used + RESERVED * (reserved - used) + RESIDENT * (most - reserved) + NOTHING * (width - most)


class KvBar(Widget):
    """The row, and below it, where there is room, what it means."""

    def __init__(self) -> None:
        super().__init__(classes="kv")
        self._memory: LaneMemory | None = None
        self._scale = 0

    def show(self, memory: LaneMemory | None, scale: int) -> None:
        """scale: see scale_of."""
        self._memory, self._scale = memory, scale
        self.refresh()

    def render(self) -> Content:
        """One line or two."""
        width, height = self.content_size
        words = _LABEL if width >= _NARROW else _SHORT_LABEL
        label = Content.styled(words, "$foreground-muted")
        memory = self._memory
        if memory is None or not self._scale:
            return label
        if height == 1:
            figure = f" {_size(memory.kv_used)} of {_size(memory.kv_reserved)}"
            if width - len(words) - len(figure) < _LEAST:
                figure = f" {_size(memory.kv_used)}"
            cells = cells_of(memory, self._scale, max(1, width - len(words) - len(figure)))
            return Content.assemble(label, cells, figure)
        cells = cells_of(memory, self._scale, max(1, width - len(words)))
        return Content.assemble(label, cells, "\n", _legend(memory, width))


def _legend(memory: LaneMemory, width: int) -> str:
    """With words where they fit."""
    signs = (USED, RESERVED, RESIDENT)
    figures = [f"{sign} {_size(n)}" for sign, n in zip(signs, memory[:3], strict=True)]
    words = [f"{figure} {word}" for figure, word in zip(figures, ("used", "reserved", "in RAM"), strict=True)]
    return next((text for text in map(" ".join, (words, figures)) if len(text) <= width), "")


def _most(memory: LaneMemory) -> int:
    return max(memory.kv_used or 0, memory.kv_reserved or 0, memory.kv_resident or 0)


def _cells(n: int | None, scale: int, width: int) -> int:
    """At least one of what there is."""
    return min(width, max(round(width * n / scale), 1)) if n and scale else 0


def _size(n: int | None) -> str:
    return "?" if n is None else format_bytes(n)
