"""Streaming text against the same text decoded and searched as a whole."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from engine.errors import PromptError
from engine.tokenizer import Tokenizer


class Vocabulary:
    """Token i is the i-th piece: any bytes at all, which no real vocabulary offers."""

    def __init__(self, pieces: list[bytes]):
        self._pieces = pieces

    def piece(self, token_id: int) -> bytes:
        return self._pieces[token_id]


CHARACTER_BEGINNINGS = {
    chr(code).encode()[:length]
    for code in range(0, 0x110000, 64)  # the last byte of a character holds six bits, and is never in a beginning
    if not 0xD800 <= code < 0xE000
    for length in range(1, len(chr(code).encode()))
}


def expected_text(data: bytes, stop: list[str]) -> str:
    for length in (3, 2, 1):
        if data[-length:] in CHARACTER_BEGINNINGS:
            data = data[:-length]
            break
    text = data.decode("utf-8", "replace")
    for end in range(1, len(text) + 1):
        met = [s for s in stop if text[:end].endswith(s)]
        if met:
            return text[: end - max(map(len, met))]
    return text


def stream(pieces: list[bytes], stop: list[str]) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(Vocabulary(pieces), stop)
    return [detokenizer.push(i) for i in range(len(pieces))], detokenizer


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


few_letters = st.text("ab", max_size=30)
any_text = st.text(max_size=20)
stops = st.lists(st.text("ab", min_size=1, max_size=5), max_size=3)
places = st.lists(st.integers(0, 200), max_size=40)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(text=st.one_of(few_letters, any_text), places=places, stop=stops)
@example(text="abcx", places=[1, 2, 3], stop=["abcd", "bc"])
@example(text="aab", places=[1, 2], stop=["ab"])
def test_how_text_was_cut_into_tokens_makes_no_difference(text: str, places: list[int], stop: list[str]) -> None:
    pushed, detokenizer = stream(cut(text.encode(), places), stop)
    whole = "".join(pushed) + detokenizer.finish()
    assert whole == expected_text(text.encode(), stop)
    assert detokenizer.stopped == any(s in text for s in stop)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    data=st.lists(st.one_of(st.binary(max_size=3), st.text(max_size=2).map(str.encode))).map(b"".join), places=places
)
def test_bytes_that_are_no_utf8_become_replacement_characters(data: bytes, places: list[int]) -> None:
    pushed, detokenizer = stream(cut(data, places), [])
    assert "".join(pushed) + detokenizer.finish() == expected_text(data, [])


@settings(derandomize=True, max_examples=200, deadline=None)
@given(text=few_letters, places=places, stop=stops)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, places: list[int], stop: list[str]) -> None:
    detokenizer = Detokenizer(Vocabulary(cut(text.encode(), places)), stop)
    seen = emitted = ""
    for token_id, piece in enumerate(cut(text.encode(), places)):
        seen += piece.decode()
        emitted += detokenizer.push(token_id)
        if detokenizer.stopped:
            break
        held = seen.removeprefix(emitted)
        assert held == "" or any(s.startswith(held) for s in stop)


def test_no_character_is_shown_before_it_is_complete() -> None:
    pushed, detokenizer = stream([b"\xf0", b"\x9f\x9a", b"\x80", "语".encode()[:2], "语".encode()[2:] + b"!"], [])
    assert pushed == ["", "", "🚀", "", "语!"]
    assert detokenizer.finish() == ""


def test_an_incomplete_character_at_the_end_is_dropped() -> None:
    pushed, detokenizer = stream([b"ok", b"\xf0\x9f"], [])
    assert (pushed, detokenizer.finish()) == (["ok", ""], "")


def test_nothing_of_a_stop_string_leaks() -> None:
    pushed, detokenizer = stream([b"Hi\n", b"\nUs", b"er", b": and on"], ["\n\nUser:"])
    assert pushed == ["Hi", "", "", ""]
    assert detokenizer.stopped
    assert detokenizer.finish() == ""


def test_what_looked_like_a_stop_string_is_returned_at_the_end() -> None:
    pushed, detokenizer = stream([b"Hi\n", b"\nUs"], ["\n\nUser:"])
    assert (pushed, detokenizer.finish(), detokenizer.stopped) == (["Hi", ""], "\n\nUs", False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(PromptError, match=r"^A stop string is empty: .*\.$"):
        Detokenizer(Vocabulary([]), ["x", ""])


def test_real_tokens(starter_path: Path) -> None:
    tokenizer = Tokenizer(str(starter_path))
    text = "Emoji 🚀, 中文, naïve — all split over tokens; <|im_end|> is no text."
    tokens = tokenizer.encode_raw(text)
    assert any(len(tokenizer.piece(t).decode("utf-8", "ignore")) == 0 for t in tokens)
    detokenizer = Detokenizer(tokenizer)
    pushed = [detokenizer.push(token_id) for token_id in tokens]
    assert "\ufffd" not in "".join(pushed)
    assert "".join(pushed) + detokenizer.finish() == text.replace("<|im_end|>", "")
    tokenizer.close()
