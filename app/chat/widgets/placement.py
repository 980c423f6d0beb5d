"""Where the parts of a scrolling container are, as its layout has just placed them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from textual.layout import WidgetPlacement
from textual.widget import Widget

from app.chat.widgets.column import Column
from app.chat.widgets.lazy import Lazy


class Place(NamedTuple):
    """Lines of the content that a widget has, from `top` to the one before `bottom`; and its width."""

    widget: Widget
    top: int
    bottom: int
    width: int

    @property
    def is_empty(self) -> bool:
        """Whether it is a lazy part without its widgets."""
        return isinstance(self.widget, Lazy) and not self.widget.is_built

    @property
    def is_leaf(self) -> bool:
        """Whether there is no other lazy part in it."""
        return not (isinstance(self.widget, Lazy) and self.widget.is_built and self.widget.HOLDS_LAZY)


def place_of(widget: Widget, placements: Iterable[WidgetPlacement], top: int = 0) -> Place | None:
    """The place of a widget at any depth; None if it has none."""
    ancestors = set(widget.ancestors_with_self)
    placed = next((placed for placed in placements if placed.widget in ancestors), None)
    if placed is None:
        return None
    if placed.widget is widget:
        return _place(placed, top)
    return place_of(widget, _inside(placed), top + _content_top(placed))


def lazy_places(placements: Iterable[WidgetPlacement], start: int, end: int, top: int = 0) -> Iterator[Place]:
    """The lazy parts in these lines, from above, each before those that are in it."""
    for placed in placements:
        place = _place(placed, top)
        if place.bottom <= start or place.top >= end or placed.fixed:
            continue
        if isinstance(place.widget, Lazy):
            yield place
        if isinstance(place.widget, Column) and not (isinstance(place.widget, Lazy) and place.is_leaf):
            yield from lazy_places(_inside(placed), start, end, top + _content_top(placed))


def places_at(placements: Iterable[WidgetPlacement], line: int, top: int = 0) -> Iterator[Place]:
    """What is on a line, or next below it where there is nothing: a part of the content, a part of that, and so on.

    Of several side by side it is the widest: not the bullet of a list, but its text.
    """
    below = [placed for placed in placements if top + placed.region.bottom > line and not placed.fixed]
    if not below:
        return
    beside = [placed for placed in below if placed.region.y <= max(line - top, below[0].region.y)]
    placed = max(beside, key=lambda placed: placed.region.width)
    place = _place(placed, top)
    yield place
    if placed.widget.children and not place.is_empty:
        yield from places_at(_inside(placed), line, top + _content_top(placed))


def _place(placed: WidgetPlacement, top: int) -> Place:
    return Place(placed.widget, top + placed.region.y, top + placed.region.bottom, placed.region.width)


def _inside(placed: WidgetPlacement) -> list[WidgetPlacement]:
    if not placed.widget.is_attached:
        return []  # it has been removed since the layout
    size = placed.region.shrink(placed.widget.styles.gutter).size
    return placed.widget.arrange(size).placements  # the same that is about to be drawn, or has been


def _content_top(placed: WidgetPlacement) -> int:
    return placed.region.y + placed.widget.styles.gutter.top
