"""One line to type in, safe to draw whatever was pasted or is stored."""

from __future__ import annotations

from rich.highlighter import Highlighter
from rich.text import Text
from textual.widgets import Input

from app.chat.wording.pictures import pictures

_BLANKS = {ord("\t"): "␉", ord("\n"): "␊"}
"""What more than one line would know how to draw."""


class _Pictures(Highlighter):
    """Draws control characters as pictures; the value keeps them."""

    def highlight(self, text: Text) -> None:
        """Called with a copy of the value, each time it is drawn."""
        text.plain = pictures(text.plain).translate(_BLANKS)


class LineInput(Input):
    """Textual's, which would hand control characters on to the terminal."""

    def __init__(
        self, value: str | None = None, *, placeholder: str = "", id: str | None = None, compact: bool = False
    ) -> None:
        super().__init__(value, placeholder=placeholder, highlighter=_Pictures(), id=id, compact=compact)
