"""What a message's Markdown may not do: act, hide, or be taken for something else."""

from __future__ import annotations

import pytest

from app.chat.wording.markdown_text import PARSER, code_blocks
from engine.printable import UNSAFE


def shown(text: str) -> str:
    """The text of the first paragraph."""
    tokens = PARSER.parse(text)
    inline = next(token for token in tokens if token.type == "inline")
    assert inline.children is not None
    return "".join("\n" if child.type == "softbreak" else child.content for child in inline.children)


@pytest.mark.parametrize(
    "text", ["<b>bold</b>", "a <script>alert(1)</script>", "<div>\nblock\n</div>", "<!-- hidden -->", "<U+202E>"]
)
def test_html_is_text(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[here](https://example.com/a?b=c)", "here (https://example.com/a?b=c)"),
        ("see [*here*](http://x.y) now", "see here (http://x.y) now"),
        ("<https://example.com>", "https://example.com"),
        ("<me@example.com>", "me@example.com"),
        ("[https://a.b](https://a.b)", "https://a.b"),
        ("[https://bank.example](https://evil.example)", "https://bank.example (https://evil.example)"),
        ("![a cat](cat.png)", "🖼 a cat (cat.png)"),
        ("[![a cat](cat.png)](http://x.y)", "🖼 a cat (cat.png) (http://x.y)"),
        ("[app](javascript:alert(1))", "[app](javascript:alert(1))"),
        ("[ref]\n\n[ref]: http://x.y", "ref (http://x.y)"),
        ("[](http://x.y)", " (http://x.y)"),
        ("[@click=app.quit]quit[/]", "[@click=app.quit]quit[/]"),
    ],
)
def test_a_link_is_its_text_and_its_address(text: str, expected: str) -> None:
    assert shown(text) == expected
    types = {child.type for token in PARSER.parse(text) for child in token.children or ()}
    assert not types & {"link_open", "link_close", "image", "html_inline"}


@pytest.mark.parametrize("text", ["&#27;[31m", "&#x1b;]0;x", "&#x202e;evil", "[a](http://x/&#27;)", "![&#27;](x)"])
def test_an_entity_is_no_way_to_the_terminal(text: str) -> None:
    assert not UNSAFE.search(shown(text))


@pytest.mark.parametrize(
    ("info", "language"), [("python", "python"), ("", "text"), ("py title=a.py", "py"), ("  c  ", "c")]
)
def test_the_language_of_a_fence_is_one_word(info: str, language: str) -> None:
    (fence,) = PARSER.parse(f"```{info}\nx = 1\n```")
    assert (fence.info, fence.content) == (language, "x = 1\n")


def test_code_blocks_are_those_of_fences() -> None:
    text = "a\n```py\nx = 1\n```\n\n    no fence\n\n- item\n  ~~~\n  y\n  ~~~\n\n> ```\n> z\n> ```\n\n```\nopen"
    assert code_blocks(text) == ["x = 1\n", "y\n", "z\n", "open"]
    assert code_blocks("none") == []
