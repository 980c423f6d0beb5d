"""One line below the messages, while there is something to say about them: keys, and that there is new text."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class ReadingHint(Static):
    """Not there while there is nothing to say."""

    DEFAULT_CSS = """
    ReadingHint {
        height: 1; padding: 0 2; color: $text-muted; display: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="reading-hint")

    def show(self, *texts: str) -> None:
        """Say this."""
        text = "   ".join(text for text in texts if text)
        self.display = bool(text)
        self.update(Content(text), layout=False)
