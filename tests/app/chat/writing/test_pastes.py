"""Long pasted texts, and what is typed around them."""

from __future__ import annotations

import pytest

from app.chat.writing.draft import Draft, Recall
from app.chat.writing.pastes import Pastes, is_long, unix_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", False),
        ("a\n" * 9 + "a", False),
        ("a\n" * 10 + "a", True),
        ("a" * 2000, False),
        ("a" * 2001, True),
        ("", False),
    ],
)
def test_what_is_long(text: str, expected: bool) -> None:
    assert is_long(text) is expected


def test_a_placeholder_says_how_much_it_stands_for() -> None:
    pastes = Pastes()
    assert pastes.fold("x" * 49 + "\n" + ("x" * 49 + "\n") * 20_971) == "[Pasted text #1: 1.0 MiB, 20,972 lines]"
    assert pastes.fold("é") == "[Pasted text #2: 2 bytes, 1 line]"
    assert pastes.fold("é") == "[Pasted text #2: 2 bytes, 1 line]"
    assert pastes.fold("\ud800") == "[Pasted text #3: 3 bytes, 1 line]"


def test_placeholders_are_replaced_wherever_they_are() -> None:
    pastes = Pastes()
    first, second = pastes.fold("one\n"), pastes.fold("two")
    assert pastes.expand(f"a{second}{first}{second}b") == "atwoone\ntwob"
    line = f"{first} and {second}"
    assert [line[start:end] for start, end in pastes.spans(line)] == [first, second]


def test_what_only_looks_like_a_placeholder_is_text() -> None:
    pastes, typed = Pastes(), "[Pasted text #1: 4 bytes, 1 line]"
    assert pastes.expand(typed) == typed
    assert list(pastes.spans(typed)) == []
    folded = pastes.fold("[Pasted text #2: 1 bytes, 1 line] \\1 \\g<0>")
    pastes.fold("x")
    assert pastes.expand(folded) == "[Pasted text #2: 1 bytes, 1 line] \\1 \\g<0>"


def test_line_ends_of_terminals() -> None:
    assert unix_lines("a\rb\r\nc\nd") == "a\nb\nc\nd"


def test_two_drafts_become_one() -> None:
    first, second = Pastes(), Pastes()
    failed = Draft(f"see {first.fold('long')}", first, editing=3)
    both = failed.followed_by(Draft(f"and {second.fold('other')}", second))
    assert (both.full_text, both.editing) == ("see long\nand other", 3)
    assert failed.followed_by(Draft(" ")) is failed


def test_walking_through_what_was_sent() -> None:
    draft = Draft("unsent", editing=7)
    recall = Recall(["one", "two\n" * 20], draft)
    older = recall.older()
    assert older is not None
    assert (older.text, older.full_text, older.editing) == ("[Pasted text #1: 80 bytes, 20 lines]", "two\n" * 20, 7)
    assert [step and step.text for step in (recall.older(), recall.older())] == ["one", None]
    recall.newer()
    assert recall.newer() is draft
    assert recall.newer() is None
