"""Text from a file or a model, made safe to show in a terminal.

A control character in a tensor name, a metadata value or an answer could move the cursor, change
colours, write to the clipboard or reorder what the user reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f"  # C0 without tab and newline; ESC is among them
    "\x7f-\x9f"  # DEL and C1; U+009B starts a control sequence as ESC [ does
    "\u200b\u2060-\u2064\ufeff\U000e0000-\U000e007f"  # invisible: zero-width space, word joiner, tags …
    "\u2028\u2029"  # line and paragraph separator
    "\u202a-\u202e\u2066-\u2069"  # bidirectional embeddings, overrides and isolates
    "\ud800-\udfff"  # lone surrogates: cannot be encoded, so printing them would fail
    "]"
)
"""Characters that a terminal acts on, or hides; tab and newline are not among them."""


def printable(text: str) -> str:
    """Replace every character that a terminal would act on, or hide, with a visible one.

    Tab and newline stay. C0 controls and DEL become their control pictures (ESC is ␛), the rest is
    written as <U+202E>. The zero-width joiner and non-joiner and the left-to-right and right-to-left
    marks stay: emoji, Persian, Hebrew and Arabic are written with them.
    """
    return UNSAFE.sub(_picture, text)


def one_line(text: str) -> str:
    """The same, with tabs and newlines replaced by their control pictures too."""
    return printable(text).translate(_ONE_LINE)


def quoted(name: str, limit: int = 80) -> str:
    """A name from a file for use inside a sentence: on one line, in quotes, at most `limit` of its characters."""
    if len(name) > limit:
        name = name[: limit - 1] + "…"
    return f"'{one_line(name)}'"


def listed(names: Iterable[str], most: int = 20) -> str:
    """Names inside a sentence; of more than `most`, only the number of the others."""
    all_names = list(names)
    shown, rest = ", ".join(all_names[:most]), len(all_names) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON in which such characters are escaped, so that it means the same to a program and nothing to a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], text)


_ONE_LINE = {ord("\t"): "␉", ord("\n"): "␊"}


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"<U+{code:04X}>"
