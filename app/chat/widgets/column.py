"""Widgets one below the other, laid out once for each width."""

from __future__ import annotations

from textual.containers import Vertical
from textual.geometry import Size
from textual.layout import DockArrangeResult


class LaidOutByWidth:
    """Before the class of a widget whose content does not depend on its height.

    Textual lays a container out for its height, and again for each of the sizes that those around it are tried with;
    in deep nests this takes most of the time, and the results are the same.
    """

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Let Textual find what it has laid out for this width."""
        result: DockArrangeResult = super().arrange(size.with_height(0), optimal)  # type: ignore[misc]
        return result


class Column(LaidOutByWidth, Vertical):
    """As high as its content."""

    DEFAULT_CSS = """
    Column { width: 1fr; height: auto; }
    """
