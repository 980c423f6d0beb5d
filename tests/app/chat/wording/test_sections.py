"""Sections of Markdown and of plain text: nothing is lost, and a parser reads in them what it reads in the whole."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.chat.wording.sections import (
    ENOUGH,
    LONG_LINE,
    TOO_LONG,
    Piece,
    SectionWriter,
    markdown_sections,
    plain_sections,
)

PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
PARAGRAPH = "Some **words** that go on for a while, so that sections have an end. " * 3 + "\n\n"
BLOCKS = [
    PARAGRAPH,
    "# Heading\n\n",
    "Setext\n======\n\n",
    "- one\n- two\n\n  still two\n- three\n\n",
    "1. one\n2. two\n\n   ```py\n   x = 1\n\n   y = 2\n   ```\n\n3. three\n\n",
    "```python\ndef f():\n\n    return 1\n# no heading\n```\n\n",
    "~~~\n```\n- no list\n\n```\n~~~\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n",
    "> quoted\n> more\n\n",
    "    indented code\n\n    more of it\n\n",
    "---\n\n",
    "<div>\n\nno *HTML*\n\n</div>\n\n",
]
documents = st.lists(st.sampled_from(BLOCKS), min_size=8, max_size=40).map("".join)


def blocks(text: str) -> list[tuple[str, str, str]]:
    return [(token.type, token.tag, token.content) for token in PARSER.parse(text)]


def written(text: str, sizes: list[int]) -> list[str]:
    """The sections, after the text has come in pieces of these sizes."""
    writer, sections, start = SectionWriter(), [], 0
    pieces: list[Piece] = []
    for size in itertools.cycle(sizes):
        pieces += writer.write(text[start : start + size])
        start += size
        if start >= len(text):
            break
    for piece in pieces + writer.finish():
        if piece.begins:
            sections.append(piece.text)
        else:
            sections[-1] += piece.text
    return sections


@settings(deadline=None, max_examples=60)
@given(documents, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_sections_of_ordinary_blocks_are_the_document(text: str, sizes: list[int]) -> None:
    sections = written(text, sizes)
    assert "".join(sections) == text
    assert [block for section in sections for block in blocks(section)] == blocks(text)
    assert len(sections) > len(text) // TOO_LONG


@settings(deadline=None, max_examples=60)
@given(
    st.text(st.sampled_from("a `~-*+#|>=1.)\n\t\r"), max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=5)
)
def test_nothing_is_lost_whatever_is_written(odd: str, sizes: list[int]) -> None:
    text = PARAGRAPH * (ENOUGH // len(PARAGRAPH) + 1) + odd
    assert "".join(written(text, sizes)) == text


def test_a_long_fence_goes_on_as_a_fence() -> None:
    code = "".join(f"line {number}\n\n" for number in range(2_000))
    pieces = markdown_sections(f"Before.\n\n```python\n{code}```\n\nAfter.\n")
    assert all(len(piece.text) <= TOO_LONG + 20 for piece in pieces)
    tokens = [token for piece in pieces for token in PARSER.parse(piece.text)]
    fences = [token for token in tokens if token.type == "fence"]
    assert {token.info for token in fences} == {"python"}
    assert "".join(token.content for token in fences) == code
    assert tokens[1].content == "Before."
    assert tokens[-2].content == "After."
    assert sum(piece.cuts for piece in pieces) == len(fences) - 1


def test_a_long_table_repeats_its_head() -> None:
    rows = "".join(f"| {number} | x |\n" for number in range(1_000))
    pieces = markdown_sections(f"| n | y |\n|---|---|\n{rows}")
    cells = [[token.content for token in PARSER.parse(piece.text) if token.type == "inline"] for piece in pieces]
    assert len(cells) > 3
    assert all(content[:2] == ["n", "y"] for content in cells)
    assert [content for part in cells for content in part[2::2]] == [str(number) for number in range(1_000)]


@pytest.mark.parametrize("item", ["- item {}\n", "{}. item\n", "* item {}\n\n"])
def test_a_long_list_is_cut_between_its_items(item: str) -> None:
    text = "".join(item.format(number) for number in range(1, 1_000))
    pieces = markdown_sections(text)
    assert len(pieces) > 3
    assert "".join(piece.text for piece in pieces) == text
    kinds = [[token.type for token in PARSER.parse(piece.text) if token.level == 0] for piece in pieces]
    assert all(len(kind) == 2 and kind[0].endswith("list_open") for kind in kinds)


def test_a_line_without_end_is_cut_between_words() -> None:
    text = "words " * 10_000
    pieces = markdown_sections(text)
    assert "".join(piece.text for piece in pieces) == text
    assert all(len(piece.text) < LONG_LINE + 20 for piece in pieces)
    assert all(piece.text.endswith(" ") for piece in pieces)


def test_a_word_without_end_is_cut_anywhere() -> None:
    pieces = markdown_sections("x" * 100_000)
    assert "".join(piece.text for piece in pieces) == "x" * 100_000
    assert all(len(piece.text) <= 2 * LONG_LINE for piece in pieces)


def at_the_end_of_a_section() -> SectionWriter:
    writer = SectionWriter()
    while len(writer._section) < ENOUGH:
        writer.write(PARAGRAPH)
    return writer


def test_little_is_held_back() -> None:
    writer = at_the_end_of_a_section()
    assert writer.write("1") == []
    assert writer.write("2") == []
    assert writer.write(" words") == [Piece("12 words", begins=True)]
    assert writer.finish() == []
    assert writer.write(" more") == [Piece(" more", begins=False)]


def test_what_is_held_back_comes_at_the_end() -> None:
    writer = at_the_end_of_a_section()
    assert writer.write("``") == []
    assert writer.finish() == [Piece("``", begins=False)]
    assert writer.finish() == []


def test_an_empty_text() -> None:
    assert markdown_sections("") == []
    assert list(plain_sections("")) == []


@pytest.mark.parametrize("text", ["one line", "a\n" * 20_000, "\n\n\n", "x" * 100_000, "ends\n\n"])
def test_plain_sections_are_the_text(text: str) -> None:
    sections = list(plain_sections(text))
    assert all(len(section) <= 8_000 for section in sections)
    joined = "\n".join(sections) if "\n" in text else "".join(sections)
    assert joined.rstrip("\n") == text.rstrip("\n")


def test_a_huge_text_has_few_sections() -> None:
    assert len(list(plain_sections("word\n" * 2_000_000))) <= 501
