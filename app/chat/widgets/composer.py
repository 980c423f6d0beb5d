"""Where the user writes: an editor that grows with its text."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.message import Message
from textual.widgets import TextArea


class Composer(TextArea):
    """Enter sends; Ctrl-J, Shift-Enter and Alt-Enter begin another line."""

    @dataclass
    class Submitted(Message):
        """The user wants to say this."""

        text: str

    def __init__(self) -> None:
        super().__init__(id="composer", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.prevent_default().stop()
            if self.text.strip():
                self.post_message(self.Submitted(self.text))
                self.text = ""
        elif event.key in ("ctrl+j", "shift+enter", "alt+enter"):
            event.prevent_default().stop()
            self.insert("\n")
        else:
            await super()._on_key(event)
