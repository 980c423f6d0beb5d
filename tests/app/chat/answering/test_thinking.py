"""Thoughts and answers, whole and at every place where a piece of a reply can end."""

from __future__ import annotations

import itertools
import time

import pytest

from app.chat.answering.thinking import ThoughtAndAnswer, parts

WHOLE = {
    "<think>\nHm, 2 < 3.\n</think>\n\nYes.": ThoughtAndAnswer("Hm, 2 < 3.", False, "Yes."),
    "<thinking>Hm</thinking>Yes.": ThoughtAndAnswer("Hm", False, "Yes."),
    "  \n<think>Hm</think>\n \n    code\n": ThoughtAndAnswer("Hm", False, "    code\n"),
    "<think>\n\n</think>\n\nYes.": ThoughtAndAnswer(None, False, "Yes."),
    "<think>Hm": ThoughtAndAnswer("Hm", True, ""),
    "<think>": ThoughtAndAnswer("", True, ""),
    "<think>Hm</think>": ThoughtAndAnswer("Hm", False, ""),
    "<think>a </thinking> b</think>c": ThoughtAndAnswer("a </thinking> b", False, "c"),
    "<thinking>a </think> b</thinking>c": ThoughtAndAnswer("a </think> b", False, "c"),
    "<think>a</think>b <think>c</think>": ThoughtAndAnswer("a", False, "b <think>c</think>"),
    "<think>a</think>\n```\n<think>c</think>\n```": ThoughtAndAnswer("a", False, "```\n<think>c</think>\n```"),
    "Write <think>Hm</think> first.": ThoughtAndAnswer(None, False, "Write <think>Hm</think> first."),
    "```xml\n<think>Hm</think>\n```": ThoughtAndAnswer(None, False, "```xml\n<think>Hm</think>\n```"),
    "</think> Yes.": ThoughtAndAnswer(None, False, "</think> Yes."),
    "<thinker>Rodin</thinker>": ThoughtAndAnswer(None, False, "<thinker>Rodin</thinker>"),
    "<Think>Hm": ThoughtAndAnswer(None, False, "<Think>Hm"),
    "  Yes. ": ThoughtAndAnswer(None, False, "  Yes. "),
    "<think>a <b </thi": ThoughtAndAnswer("a <b </thi", True, ""),
    "<": ThoughtAndAnswer(None, False, "<"),
    "<thi": ThoughtAndAnswer(None, False, "<thi"),
    " ": ThoughtAndAnswer(None, False, " "),
    "": ThoughtAndAnswer(None, False, ""),
}


@pytest.mark.parametrize(("text", "expected"), WHOLE.items(), ids=map(repr, WHOLE))
def test_a_reply_that_has_ended(text: str, expected: ThoughtAndAnswer) -> None:
    assert parts(text, is_ended=True) == expected


@pytest.mark.parametrize("text", WHOLE, ids=map(repr, WHOLE))
def test_what_was_shown_only_ever_grows(text: str) -> None:
    """Wherever the pieces are cut, a screen that appends what is new ends up with the whole reply."""
    beginnings = [parts(text[:end]) for end in range(len(text) + 1)]
    for shorter, longer in itertools.pairwise([*beginnings, parts(text, is_ended=True)]):
        assert longer.answer.startswith(shorter.answer)
        assert (longer.thought or "").startswith(shorter.thought or "")
        assert not (shorter.answer and longer.is_open)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<thi", ThoughtAndAnswer(None, False, "")),
        ("<think", ThoughtAndAnswer(None, False, "")),
        ("<thinkin", ThoughtAndAnswer(None, False, "")),
        ("\n ", ThoughtAndAnswer(None, False, "")),
        ("<thinks", ThoughtAndAnswer(None, False, "<thinks")),
        ("<think>a </thi", ThoughtAndAnswer("a", True, "")),
        ("<think>a </thin ", ThoughtAndAnswer("a </thin", True, "")),
    ],
)
def test_what_may_become_a_tag_is_held_back(text: str, expected: ThoughtAndAnswer) -> None:
    assert parts(text) == expected


@pytest.mark.parametrize("unit", ["<", "<think>", "</thi", " ", "\n", " \n", "a"])
def test_time_is_linear(unit: str) -> None:
    """Four million characters take far less than a minute, and would take hours if the time were quadratic."""
    start = time.monotonic()
    parts("<think>" + unit * (4_000_000 // len(unit)))
    parts("<think></think>" + unit * (4_000_000 // len(unit)), is_ended=True)
    assert time.monotonic() - start < 60
