"""One line: the model, how full its window is, and what its KV memory holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from textual.content import Content
from textual.widgets import Static

from app.chat.wording.status import SEPARATOR, Status, fitted, parts_of

_STYLES = {"model": "bold", "warning": "bold $warning", "loading": "$accent", "activity": "$accent"}


class StatusBar(Static):
    """Below the composer. status: what it says now."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self.status = Status()

    def change(self, **changes: Any) -> None:
        """Set fields of Status; nothing is drawn when all of them are as they were."""
        status = replace(self.status, **changes)
        if status != self.status:
            self.status = status
            self.refresh()

    def render(self) -> Content:
        """What fits."""
        texts = fitted(parts_of(self.status), self.content_size.width)
        return Content(SEPARATOR).join(Content.styled(text, _STYLES.get(name, "")) for name, text in texts)
