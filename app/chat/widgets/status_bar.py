"""One line: the model, how full its window is, and what its KV memory holds."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from engine.printable import one_line


class StatusBar(Static):
    """Below the composer."""

    def __init__(self) -> None:
        super().__init__(id="status")

    def show(self, *parts: str) -> None:
        """What to say, from the left."""
        self.update(Content(one_line("  ·  ".join(part for part in parts if part))))
