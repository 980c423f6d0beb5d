"""Markdown of a model or a user as this app reads it: what is shown is text, and nothing in it is an action.

HTML is text. A link is its text, and after it the address, for the reader to judge; an image is the same. Characters
that act on a terminal are shown, also those that an entity such as `&#27;` stands for.
"""

from __future__ import annotations

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from engine.printable import printable


def _plain_inlines(state: StateCore) -> None:
    """Rule after those for inlines: only text and its emphasis are left.

    Code of no language has the one of text: Textual would try all languages on it, which takes longer than a key press.
    """
    for token in state.tokens:
        if token.children:
            token.children = list(_without_links(token.children))
        elif token.type in ("fence", "code_block"):
            token.info = (token.info.split() or ["text"])[0]


def _without_links(tokens: list[Token]) -> Iterator[Token]:
    addresses: list[tuple[str, int]] = []
    shown = ""
    for token in tokens:
        if token.type == "link_open":
            addresses.append((str(token.attrs.get("href", "")), len(shown)))
        elif token.type == "link_close":
            address, start = addresses.pop()
            if address and address.removeprefix("mailto:") != shown[start:]:
                yield _text(f" ({address})")
        elif token.type == "image":
            yield _text(f"🖼 {token.content} ({token.attrs.get('src', '')})")
        else:
            shown += token.content
            token.content = printable(token.content)
            yield token


def _text(text: str) -> Token:
    return Token("text", "", 0, content=printable(text))


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.core.ruler.push("plain_inlines", _plain_inlines)
    parser.parse("*")  # compiles its rules, before threads use it
    return parser


def _block_parser() -> MarkdownIt:
    parser = _parser()
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


PARSER = _parser()
BLOCKS = _block_parser()
"""The same without the inlines: where blocks begin and end, in a fraction of the time."""


def code_blocks(text: str) -> list[str]:
    """The code of all fences, in their order; of one that is still open, what there is."""
    return [token.content for token in BLOCKS.parse(text) if token.type == "fence"]
