"""Titles of chats: what the user gives, what the model finds, and what does until there is one of these."""

from __future__ import annotations

import re

TITLE_WORDS = 6
OPENING = 'Topic: "'
"""The model's answer about the title begins so: small models would write about the title, and not the title."""

_LONGEST_GIVEN = 200
"""Characters of a title that the user gives."""
_LONGEST = 60
"""Characters of other titles."""
_LEAST_SAID = 12
"""Characters that the user has to have written for the model to know what it is about."""

_ENDS = re.compile(r"[\"“”„«»\n]")
_AROUND = " \t#*_~\"'“”„«»‘’`.:,;-–—"
_LEAD_IN = re.compile(
    r"(?:(?:here(?:'|’)?s|here is|sure|certainly|okay)\b[\s,:!]*)?"
    r"(?:(?:the|a|one)\s+)?(?:(?:short|possible|suitable|good|suggested)\s+)*"
    r"(?:title|topic|subject|titel|thema|titre|sujet|t[ií]tulo|tema|titolo)"
    r"(?:\s+(?:of|for)\s+(?:this|the|our|your)\s+(?:conversation|chat|discussion))?"
    r"(?:\s+(?:is|was|are|(?:c|w)ould be|might be)\b:?|\s*:|$)\s*(?:about\s+)?"
    r"|(?:this|the|our)\s+(?:conversation|chat|discussion)\s+(?:is|was)\s+about\s+",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"(?:i|i(?:'|’)(?:m|ll|d|ve)|sure|certainly|okay|sorry|as an ai|here(?:'|’)?s|here is)\b(?!\w)|"
    r"(?:the\s+|this\s+|our\s+)?(?:new\s+)?(?:conversation|chat|discussion|chat history|title|topic|untitled|none)$|"
    r".*\b(?:this|the|our) (?:conversation|chat|topic|title)\b",
    re.IGNORECASE,
)


def found_title(answer: str) -> str:
    """The title in the model's answer, of which OPENING was the beginning; nothing if there is none.

    Models may close the quote and go on, put a sentence around the title, use Markdown, or talk about something else.
    """
    for line in _ENDS.split(answer):
        title = _without_lead_in(" ".join(line.split()).strip(_AROUND))
        if title:
            is_title = len(title.split()) <= 2 * TITLE_WORDS and not _SAYS_NOTHING.match(title)
            return _cut(title) if is_title else ""
    return ""


def can_be_found(said: str) -> bool:
    """Whether the user has said enough for the model to find a title: after "hi" it makes something up."""
    return len(" ".join(said.split())) >= _LEAST_SAID


def given_title(text: str) -> str:
    """A title that the user gives: on one line, and cut where nobody reads on."""
    return " ".join(text.split())[:_LONGEST_GIVEN]


def provisional_title(text: str) -> str:
    """A title until there is a better one: the beginning of what the user wrote."""
    return _cut(" ".join(text.split()))


def _without_lead_in(title: str) -> str:
    """The title after "The title of this conversation is", several times if need be."""
    while (lead_in := _LEAD_IN.match(title)) is not None:
        title = title[lead_in.end() :].strip(_AROUND)
        title = title[:1].upper() + title[1:]
    return title


def _cut(title: str) -> str:
    return title if len(title) <= _LONGEST else title[: _LONGEST - 1].rsplit(" ", 1)[0] + "…"
