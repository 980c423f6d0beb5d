"""A reply of a reasoning model, taken apart into what it thought and what it says.

Such models write `<think>…</think>`, some `<thinking>…</thinking>`, before they answer. The same tag further down is
text: people and models write about it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


class ThoughtAndAnswer(NamedTuple):
    """thought: None if there is none, or an empty one that has ended. is_open: whether it still goes on."""

    thought: str | None
    is_open: bool
    answer: str


def parts(text: str, *, is_ended: bool = False) -> ThoughtAndAnswer:
    """Take a reply apart, or the beginning of one.

    A tag may be cut in two where the text ends. Unless the reply is known to have ended, what may become a tag is held
    back, so that thought and answer only ever grow at their ends as more text arrives.
    """
    for opening, closing in _TAGS:
        begun = text.lstrip()
        if begun.startswith(opening):
            return _after_opening(begun.removeprefix(opening), closing, is_ended)
        if opening.startswith(begun) and not is_ended:
            return ThoughtAndAnswer(None, False, "")
    return ThoughtAndAnswer(None, False, text)


def _after_opening(text: str, closing: str, is_ended: bool) -> ThoughtAndAnswer:
    thought, tag, rest = text.partition(closing)
    if tag:
        return ThoughtAndAnswer(thought.strip() or None, False, _without_blank_lines(rest))
    if not is_ended:
        thought = _without_beginning(thought, closing)
    return ThoughtAndAnswer(thought.strip(), True, "")


def _without_beginning(text: str, tag: str) -> str:
    """The text up to where its end may be the beginning of a tag."""
    start = text.rfind("<", max(0, len(text) - len(tag)))
    return text[:start] if start >= 0 and tag.startswith(text[start:]) else text


def _without_blank_lines(text: str) -> str:
    """The text from its first line with a word on; indentation there may be Markdown for code."""
    if not text.strip():
        return ""
    lines = _BLANK_LINES.match(text)
    assert lines is not None
    return text[lines.end() :]
