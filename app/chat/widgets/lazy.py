"""A part of the transcript that has its widgets only while it is near the window: a chat of megabytes opens at once."""

from __future__ import annotations

from collections.abc import Iterable

from textual.app import ComposeResult
from textual.geometry import NULL_SIZE, Size
from textual.widget import Widget

from app.chat.widgets.column import Column


def wrapped_lines(text: str, width: int) -> int:
    """Lines that a text takes, about: where words break and which characters are wide is not looked at."""
    width = max(width, 1)
    return sum(1 + max(len(line) - 1, 0) // width for line in text.split("\n"))


class Lazy(Column):
    """Empty at first, but as high as its widgets will be, about; or as they were, if it had them.

    LazyScroll builds and drops it. is_built: whether it has its widgets. HOLDS_LAZY: whether others are among them.
    expected: its size while it is not built.
    """

    HOLDS_LAZY = False

    def __init__(self, *, classes: str = "", is_built: bool = False) -> None:
        super().__init__(classes=classes)
        self.is_built = is_built
        self.expected = NULL_SIZE

    def estimate(self, width: int) -> int:
        """Lines that the widgets will take, about."""
        raise NotImplementedError

    def parts(self) -> Iterable[Widget]:
        """The widgets."""
        raise NotImplementedError

    async def fill(self) -> None:
        """Hook: the widgets are there, and may get their content."""

    async def on_mount(self) -> None:
        """The widgets that are there from the beginning get their content."""
        if self.is_built:
            await self.fill()

    def compose(self) -> ComposeResult:
        """The widgets, if they are wanted from the beginning."""
        if self.is_built:
            yield from self.parts()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """What there is, or what is expected."""
        if self.is_built:
            return super().get_content_height(container, viewport, width)
        return self.expected_height(width)

    def expected_height(self, width: int) -> int:
        """Lines that it takes while it is not built."""
        if self.expected.width != width:
            self.expected = Size(width, self.estimate(width))
        return self.expected.height

    def forget_height(self) -> None:
        """The widgets would be other ones now."""
        self.expected = NULL_SIZE
        self.refresh(layout=True)

    async def build(self) -> None:
        """Make the widgets. The height changes once, when all of them are there."""
        await self.mount_all(self.parts())
        await self.fill()
        self.is_built = True
        self.refresh(layout=True)

    async def drop(self) -> None:
        """Do without the widgets, and keep the height until the width changes."""
        self.expected = self.content_size
        self.is_built = False
        await self.remove_children()
        self._clear_arrangement_cache()  # which would keep the widgets
