"""Text that is being edited, as it is drawn."""

from __future__ import annotations

import re

from engine.printable import UNSAFE


def pictures(text: str) -> str:
    """One visible character for each that a terminal acts on, or hides, so that columns stay what they are."""
    return UNSAFE.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < 0x20 else "\ufffd"
