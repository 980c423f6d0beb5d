"""Which control tokens of a rendered prompt are the template's, and which are only words somebody wrote.

A template prints control tokens such as `<|im_end|>` as text, between the contents of the messages, and a content
may spell the same. After rendering the two look alike, so every place where a content spells a control token, or
could begin or end one together with the text around it, is marked before: with a character that occurs nowhere
else, put *behind* the words, so that the template's own tests and cuts (`in`, `split`, `startswith`, `strip`) still
find what they look for. The marks come out again before the prompt becomes tokens, and leave no trace in them.

Not covered: a template that assembles a control token out of contents by rewriting them (`lower`, `replace`), or
that puts half a control token next to the middle of a content.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.messages import ChatMessage, Role

_MARKS = range(0xF0000, 0x10FFFE)
"""The code points of Unicode's private use planes, in which texts have next to nothing."""


class MarkedMessages(NamedTuple):
    """Messages ready to be rendered; `marks` maps each mark to the words in front of it."""

    messages: list[ChatMessage]
    marks: dict[str, str]


class ControlTokens:
    """The control tokens of one vocabulary.

    ids: spelling and id of each token that stands for something other than its spelling. They are never text.
    markup: spellings that the tokenizer finds in any text (it calls them user-defined) although they delimit turns
    or parts of them. They are kept apart from what people write, but not from what the model wrote: its own
    `<think>` comes back as the same token.
    """

    def __init__(self, ids: Mapping[str, int], markup: Iterable[str] = ()):
        self._ids = ids
        self._control = _Spellings(ids)
        self._markup = _Spellings(markup)
        self._all = _Spellings({*ids, *self._markup.words})

    def mark(self, messages: Sequence[ChatMessage], template: str) -> MarkedMessages:
        """Mark what looks like a control token in the contents, with characters that `template` lacks too."""
        taken = {*template, *itertools.chain.from_iterable(message.content for message in messages)}
        free = (chr(code) for code in _MARKS if chr(code) not in taken)
        mark_of: dict[str, str] = {}

        def marked(message: ChatMessage) -> ChatMessage:
            spellings = self._control if message.role == Role.ASSISTANT else self._all
            content, parts, end = message.content, [], 0
            for start, stop in _joined(spellings.suspects(content)):
                words = content[start:stop]
                if words not in mark_of:
                    mark_of[words] = next(free)
                parts += [content[end:stop], mark_of[words]]
                end = stop
            return dataclasses.replace(message, content="".join(parts) + content[end:])

        return MarkedMessages([marked(m) for m in messages], {mark: words for words, mark in mark_of.items()})

    def split(self, rendered: str, marks: Mapping[str, str]) -> list[int | str]:
        """Take a rendered prompt apart: an id for each control token of the template, and the text between them.

        A string that follows a string continues its text, cut where the tokenizer would see a piece of markup.
        """
        text, written = _unmark(rendered, marks)
        cuts = [start + 1 for start, end in self._markup.occurrences(text) if any(written[start:end])]
        fragments: list[int | str] = []
        position = 0
        for start, end in self._control.occurrences(text):
            if start >= position and not any(written[start:end]):
                fragments += _cut(text, position, start, cuts)
                fragments.append(self._ids[text[start:end]])
                position = end
        return fragments + _cut(text, position, len(text), cuts)


class _Spellings:
    """A set of words, found wherever they occur in a text."""

    def __init__(self, words: Iterable[str]):
        self.words = frozenset(words)
        self._sorted = sorted(self.words)
        self._sorted_backwards = sorted(word[::-1] for word in self.words)
        lengths: dict[str, set[int]] = {}
        for word in self.words:
            lengths.setdefault(word[0], set()).add(len(word))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._first = re.compile(f"[{re.escape(''.join(lengths))}]" if lengths else "(?!)")
        self._longest = max(map(len, self.words), default=0)

    def occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of every word in the text, by start and then the longest first; they may overlap."""
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths[match[0]]:
                if text[start : start + length] in self.words:
                    yield start, start + length

    def suspects(self, text: str) -> Iterator[tuple[int, int]]:
        """Occurrences, and what could begin or end a word across the text's ends, should they be stripped of space."""
        first, last = len(text) - len(text.lstrip()), len(text.rstrip())
        for length in range(1, min(self._longest, last - first + 1)):
            if _has_prefix(self._sorted_backwards, text[first : first + length][::-1]):
                yield first, first + length
        yield from self.occurrences(text)
        for length in range(1, min(self._longest, last - first + 1)):
            if _has_prefix(self._sorted, text[last - length : last]):
                yield last - length, last


def _has_prefix(ordered: list[str], stem: str) -> bool:
    index = bisect.bisect_left(ordered, stem)
    return index < len(ordered) and ordered[index].startswith(stem)


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places as ranges that do not overlap, in order."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _unmark(rendered: str, marks: Mapping[str, str]) -> tuple[str, bytearray]:
    """The text without its marks, and for each character 1 if a mark says that a content spelled it."""
    if not marks:
        return rendered, bytearray(len(rendered))
    written = bytearray()
    parts = re.split(f"([{''.join(marks)}])", rendered)
    for part, mark in itertools.zip_longest(parts[::2], parts[1::2]):
        written += bytes(len(part))
        # A template that cut at the words themselves has left their mark without them.
        if mark is not None and part.endswith(marks[mark]):
            length = len(marks[mark])
            written[len(written) - length :] = b"\1" * length
    return "".join(parts[::2]), written


def _cut(text: str, start: int, end: int, cuts: Iterable[int]) -> list[int | str]:
    bounds = [start, *(cut for cut in cuts if start < cut < end), end]
    return [text[low:high] for low, high in itertools.pairwise(bounds) if low < high]
