"""A scrolling container whose lazy parts have widgets only near the window, and that keeps its place.

What is above the window may change its height, when it gets its widgets or the window gets another width; what the user
reads stays where it is. At the end, it stays at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterator
from typing import NamedTuple

from textual.containers import VerticalScroll
from textual.geometry import NULL_SIZE, Size
from textual.layout import DockArrangeResult, WidgetPlacement
from textual.scrollbar import ScrollBar
from textual.widget import Widget

from app.chat.widgets.column import Column
from app.chat.widgets.lazy import Lazy
from app.chat.widgets.placement import Place, lazy_places, place_of, places_at

_NEAR = 1
"""Windows above and below the window in which widgets are made."""

_FAR = 2
"""Windows away from the window where widgets are dropped."""


class _Held(NamedTuple):
    """What stays where it is: lines from the top of the window to the widget, and its size when that was measured."""

    widget: Widget
    offset: int
    size: Size

    @classmethod
    def at(cls, place: Place, y: int) -> _Held:
        """A widget that is in this place when the window begins at line `y`."""
        return cls(place.widget, place.top - y, Size(place.width, place.bottom - place.top))

    def line(self, place: Place) -> int:
        """The line for the window to begin with, now that the widget is in this place: at another width, the line that
        is as far from its beginning as before, in parts of its height.
        """
        height = place.bottom - place.top
        is_rewrapped = self.offset < 0 and place.width != self.size.width
        return place.top - (self.offset * height // self.size.height if is_rewrapped else self.offset)


class LazyScroll(VerticalScroll, inherit_bindings=False):
    """follows: whether it stays at the end. Textual's own anchor would not keep any other place.

    changing: held by whoever makes or drops widgets in it, or adds text to them.
    """

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.follows = True
        self.changing = asyncio.Lock()
        self._held: list[_Held] = []
        self._placements: list[WidgetPlacement] = []
        self._result: DockArrangeResult | None = None
        self._result_y = 0.0
        self._noted_y = 0.0
        self._end = 0
        self._arranged = asyncio.Event()
        self._is_filling = False

    def follow(self) -> None:
        """Go to the end, and stay there while more is added."""
        self.follows, self._held = True, []
        self.refresh(layout=True)

    def hold(self, widget: Widget) -> None:
        """Keep a widget where it is in the window, whatever changes."""
        place = self.place(widget)
        if place is not None:
            self.follows = False
            self._held = [_Held.at(place, round(self.scroll_y))]

    def begin_with(self, widget: Widget) -> None:
        """Let the window begin with a widget that has no place yet, as soon as it has one."""
        self.follows, self._held = False, [_Held(widget, 0, NULL_SIZE)]
        self.refresh(layout=True)

    def place(self, widget: Widget) -> Place | None:
        """Where a widget is in the content; None if it has no place yet."""
        return place_of(widget, self._placements)

    def jump(self, y: float) -> None:
        """Scroll to a line at once."""
        self.scroll_to(y=y, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """The user has scrolled."""
        super().watch_scroll_y(old_value, new_value)
        self._note_scrolling()

    def _note_scrolling(self) -> None:
        """If the user has scrolled: what is at the top now stays, or the end does."""
        if self.scroll_y != self._noted_y:
            self._noted_y = self.scroll_y
            self.follows = self.scroll_y >= min(self._end, self.max_scroll_y)
            self._held = [] if self.follows else self._topmost(round(self.scroll_y))
            self.followed()

    def followed(self) -> None:
        """Hook: `follows` may have changed."""

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Before what has been placed is drawn, scroll to where the same lines are as before.

        Textual may ask for this when it has set `scroll_y`, and not called its watcher yet.
        """
        self._note_scrolling()
        result = super().arrange(size, optimal)
        self._arranged.set()
        if optimal or (result is self._result and self.scroll_y == self._result_y):
            return result
        self._placements = result.placements
        self._end = max(0, result.spatial_map.total_region.bottom - size.height)
        y = self._end if self.follows else self._held_line()
        if y != round(self.scroll_y):
            self.set_reactive(Widget.scroll_y, float(y))
            self.set_reactive(Widget.scroll_target_y, float(y))
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)
        self._result, self._result_y, self._noted_y = result, self.scroll_y, self.scroll_y
        if not self._is_filling and self._next(y, size.height) is not None:
            self._is_filling = True
            self.run_worker(self._fill())
        return result

    def _held_line(self) -> int:
        """The line to scroll to so that what is held stays.

        What is held is measured once, when the user has scrolled: however often the width changes, nothing adds up.
        """
        y = round(self.scroll_y)
        places = ((held, self.place(held.widget)) for held in self._held)
        held, place = next(((held, place) for held, place in places if place is not None), (None, None))
        if held is None or place is None:
            self._held = self._topmost(y)
            return y
        y = min(max(0, held.line(place)), self._end)
        if isinstance(held.widget, Lazy) and held.widget.is_built:
            self._held = self._topmost(y)
        return y

    def _topmost(self, y: int) -> list[_Held]:
        """What is at the top of the window; if possible something whose height is known.

        The smallest part first, such as a paragraph; then what it is in, as the last paragraph is made anew when it
        grows.
        """
        places = list(places_at(self._placements, y))
        if places and places[-1].is_empty:
            seen = lazy_places(self._placements, y, y + self.size.height)
            built = (place for place in seen if place.is_leaf and not place.is_empty)
            if (first := next(built, None)) is not None:
                places = list(places_at(self._placements, max(y, first.top)))
        return [_Held.at(place, y) for place in reversed(places)]

    async def _fill(self) -> None:
        """Make the widgets that are wanted, the nearest first, and drop those that are far away.

        One at a time, and the next after a layout, as every one moves the others; keys are taken in between.
        """
        try:
            while (lazy := self._next(round(self.scroll_y), self.size.height)) is not None:
                self._arranged.clear()
                async with self.changing:
                    await lazy.build()
                await self._arranged.wait()
            for far in self._far():
                async with self.changing:
                    await far.drop()
        finally:
            self._is_filling = False

    def _next(self, y: int, height: int) -> Lazy | None:
        margin = _NEAR * height
        nearest, distance = None, margin + 1
        for place in lazy_places(self._placements, y - margin, y + height + margin):
            away = max(y - place.bottom + 1, place.top - (y + height) + 1, 0)
            if isinstance(place.widget, Lazy) and place.is_empty and away < distance:
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
