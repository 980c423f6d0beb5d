"""A scrolling container whose lazy parts have widgets only near the window, and that keeps its place.

What is above the window may change its height, when it gets its widgets or the window gets another width; what the user
reads stays where it is. At the end, it stays at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from typing import NamedTuple

from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from app.chat.widgets.column import Column
from app.chat.widgets.lazy import Lazy
from app.chat.widgets.placement import Place, lazy_places, place_of

_NEAR = 1
"""Windows above and below the window in which widgets are made."""

_FAR = 2
"""Windows away from the window where widgets are dropped."""


class _Held(NamedTuple):
    """What stays in its place: lines from the top of the window to the widget, and its height at a width."""

    widget: Widget
    offset: int
    height: int
    width: int


class LazyScroll(VerticalScroll, inherit_bindings=False):
    """follows: whether it stays at the end. Textual's own anchor would not keep any other place."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.follows = True
        self._held: _Held | None = None
        self._placements: list[WidgetPlacement] = []
        self._result: DockArrangeResult | None = None
        self._result_y = 0.0
        self._arranged = asyncio.Event()
        self._is_filling = False

    def follow(self) -> None:
        """Go to the end, and stay there while more is added."""
        self.follows, self._held = True, None
        self.refresh(layout=True)

    def hold(self, widget: Widget) -> None:
        """Keep a widget where it is in the window, whatever changes."""
        place = self.place(widget)
        if place is not None:
            self.follows = False
            self._held = self._hold_at(place)

    def begin_with(self, widget: Widget) -> None:
        """Let the window begin with a widget that has no place yet, as soon as it has one."""
        self.follows, self._held = False, _Held(widget, 0, 0, 0)
        self.refresh(layout=True)

    def place(self, widget: Widget) -> Place | None:
        """Where a widget is in the content; None if it has no place yet."""
        return place_of(widget, self._placements)

    def jump(self, y: float) -> None:
        """Scroll to a line at once."""
        self.scroll_to(y=y, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The user has scrolled: what is at the top now stays, or the end does."""
        super().watch_scroll_y(old_value, new_value)
        self.follows = new_value >= self.max_scroll_y
        self._held = None if self.follows else self._topmost(round(new_value))
        self.followed()

    def followed(self) -> None:
        """Hook: `follows` may have changed."""

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Before what has been placed is drawn, scroll to where the same lines are as before."""
        result = super().arrange(size, optimal)
        self._arranged.set()
        if optimal or (result is self._result and self.scroll_y == self._result_y):
            return result
        self._placements = result.placements
        total = result.spatial_map.total_region.bottom
        y = max(0, total - size.height) if self.follows else self._held_at(size, total)
        if y != round(self.scroll_y):
            self.set_reactive(Widget.scroll_y, float(y))
            self.set_reactive(Widget.scroll_target_y, float(y))
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)
        self._result, self._result_y = result, self.scroll_y
        if not self._is_filling and self._next(y, size.height) is not None:
            self._is_filling = True
            self.run_worker(self._fill())
        return result

    def _held_at(self, size: Size, total: int) -> int:
        """The line to scroll to so that what is held stays."""
        y = round(self.scroll_y)
        held = self._held
        place = None if held is None else self.place(held.widget)
        if held is None or place is None:
            self._held = self._topmost(y)
            return y
        offset = held.offset
        if held.width != size.width and held.height and offset < 0:
            offset = offset * (place.bottom - place.top) // held.height
        y = min(max(0, place.top - offset), max(0, total - size.height))
        if held.width != size.width or (isinstance(held.widget, Lazy) and held.widget.HOLDS_LAZY):
            self._held = self._topmost(y)
        return y

    def _topmost(self, y: int) -> _Held | None:
        """What is at the top of the window; if possible something whose height is known."""
        seen = [place for place in lazy_places(self._placements, y, y + self.size.height) if place.is_leaf]
        built = (place for place in seen if isinstance(place.widget, Lazy) and place.widget.is_built)
        place = next(built, seen[0] if seen else None)
        return None if place is None else self._hold_at(place, y)

    def _hold_at(self, place: Place, y: int | None = None) -> _Held:
        y = round(self.scroll_y) if y is None else y
        return _Held(place.widget, place.top - y, place.bottom - place.top, self.scrollable_content_region.width)

    async def _fill(self) -> None:
        """Make the widgets that are wanted, the nearest first, and drop those that are far away.

        One at a time, and the next after a layout, as every one moves the others; keys are taken in between.
        """
        try:
            while (lazy := self._next(round(self.scroll_y), self.size.height)) is not None:
                self._arranged.clear()
                await lazy.build()
                await self._arranged.wait()
            for far in self._far():
                await far.drop()
        finally:
            self._is_filling = False

    def _next(self, y: int, height: int) -> Lazy | None:
        margin = _NEAR * height
        nearest, distance = None, margin + 1
        for place in lazy_places(self._placements, y - margin, y + height + margin):
            away = max(y - place.bottom + 1, place.top - (y + height) + 1, 0)
            if isinstance(place.widget, Lazy) and not place.widget.is_built and away < distance:
                nearest, distance = place.widget, away
        return nearest

    def _far(self) -> list[Lazy]:
        """What is built, and far from the window."""
        y, height = round(self.scroll_y), self.size.height
        start, end = y - _FAR * height, y + height + _FAR * height
        return list(_built_outside({place.widget for place in lazy_places(self._placements, start, end)}, self))


def _built_outside(near: Container[Widget], widget: Widget) -> Iterator[Lazy]:
    """The outermost lazy parts in a widget that are built, and not near."""
    for child in widget.children:
        if isinstance(child, Lazy) and child not in near:
            if child.is_built:
                yield child
        elif isinstance(child, Column):
            yield from _built_outside(near, child)
