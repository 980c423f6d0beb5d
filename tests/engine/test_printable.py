"""Text from files must not control the terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.printable import listed, one_line, printable, quoted


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain größe 日本語\n\ttext", "plain größe 日本語\n\ttext"),
        ("\x1b[2J", "␛[2J"),
        ("a\rb\x00\x07\x7f", "a␍b␀␇␡"),
        ("\x9b31m", "<U+009B>31m"),
        ("abc\u202egpj.exe", "abc<U+202E>gpj.exe"),
        ("\u2066x\u2069", "<U+2066>x<U+2069>"),
        ("in\u200bvisible\ufeff", "in<U+200B>visible<U+FEFF>"),
        ("\U000e0041", "<U+E0041>"),
        ("\udc80", "<U+DC80>"),
        ("👨\u200d👩\u200d👧 می\u200cخواهم", "👨\u200d👩\u200d👧 می\u200cخواهم"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@settings(derandomize=True, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_no_control_character_is_left_and_nothing_else_changes(text: str) -> None:
    shown = printable(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\t\n"]
    shown.encode()
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text


def test_one_line() -> None:
    assert one_line("a\nb\tc\r\n") == "a␊b␉c␍␊"


def test_quoted_is_one_short_line() -> None:
    assert quoted("a\nb\t\x1b") == "'a␊b␉␛'"
    assert quoted("x" * 100, limit=5) == "'xxxx…'"
    assert quoted("12345", limit=5) == "'12345'"


def test_a_list_of_names_has_an_end() -> None:
    assert listed([]) == ""
    assert listed(["a", "b"], most=2) == "a, b"
    assert listed(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert listed(map(str, range(5000)), most=1) == "0 and 4,999 more"
