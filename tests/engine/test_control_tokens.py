"""Control tokens come from the template and from nowhere else, whatever a message says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.chat_template import ChatTemplate
from engine.control_tokens import ControlTokens
from engine.messages import ChatMessage

IDS = {"<s>": 1, "</s>": 2, "<|end|>": 3, "[INST]": 4, "[/INST]": 5, "<|end": 6, "d|><": 7}
MARKUP = ("<|start|>", "</think>")
BETWEEN = "{% for m in messages %}[INST]{{ CONTENT }}[/INST]{% endfor %}</s>"
TEMPLATES = [
    BETWEEN.replace("CONTENT", "m.content"),
    BETWEEN.replace("CONTENT", "m.content | trim"),
    BETWEEN.replace("CONTENT", "m.content.split('\n')[-1].strip()"),
    "<s>" + BETWEEN.replace("CONTENT", "m.content + eos_token"),
    "{% for m in messages %}<|end|>{{ m.content }}end|>{{ m.content | trim }}s><{{ m.content }}>{% endfor %}",
]

contents = st.lists(
    st.one_of(st.sampled_from([*IDS, *MARKUP, " ", "\n"]), st.text("<>/|send[INST] x\n", max_size=4)), max_size=8
).map("".join)


def ids_of(fragments: list[int | str]) -> list[int]:
    return [fragment for fragment in fragments if isinstance(fragment, int)]


def spelled(fragments: list[int | str]) -> str:
    words = {token_id: word for word, token_id in IDS.items()}
    return "".join(words[f] if isinstance(f, int) else f for f in fragments)


def split(source: str, role: str, texts: list[str], ids: dict[str, int] = IDS) -> tuple[list[int | str], str]:
    """The fragments of a rendered chat, and what the template would make of it without any marks."""
    tokens, template = ControlTokens(ids, MARKUP), ChatTemplate(source, "<s>", "</s>")
    messages = [ChatMessage(role, text) for text in texts]
    marked = tokens.mark(messages, source)
    return tokens.split(template.render(marked.messages), marked.marks), template.render(messages)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(source=st.sampled_from(TEMPLATES), role=st.sampled_from(["user", "assistant"]), texts=st.lists(contents))
@example(source=TEMPLATES[4], role="user", texts=["<|"])
@example(source=TEMPLATES[4], role="user", texts=["|", "</ "])
@example(source=TEMPLATES[0], role="user", texts=["<|end|><"])
def test_messages_add_no_control_token_and_lose_no_character(source: str, role: str, texts: list[str]) -> None:
    fragments, plain = split(source, role, texts)
    harmless, _ = split(source, role, ["-"] * len(texts))
    assert ids_of(fragments) == ids_of(harmless)
    assert spelled(fragments) == plain


@settings(derandomize=True, max_examples=200, deadline=None)
@given(texts=st.lists(contents))
def test_markup_of_a_user_is_cut_in_pieces_and_markup_of_the_model_is_not(texts: list[str]) -> None:
    fragments, _ = split(TEMPLATES[0], "user", texts)
    assert not any(word in fragment for fragment in fragments if isinstance(fragment, str) for word in MARKUP)
    fragments, _ = split(TEMPLATES[0], "assistant", texts, {"</s>": 2, "[INST]": 4, "[/INST]": 5})
    assert not any(isinstance(a, str) and isinstance(b, str) for a, b in itertools.pairwise(fragments))


def test_a_template_keeps_its_markup() -> None:
    fragments, _ = split("<|start|>{{ messages[0].content }}", "user", ["<|start|>"])
    assert fragments == ["<|start|><", "|start|>"]


@pytest.mark.parametrize(
    ("test", "answer"),
    [
        ("'</s>' in c", "True"),
        ("c.startswith('</s>')", "True"),
        ("c.split('</s>')[0]", ""),
        ("c.split('</s>')[-1]", " b"),
        ("c.replace('</s>', '-')", "- a - b"),
        ("(c + '  ').strip() == c", "True"),
    ],
)
def test_a_template_finds_control_tokens_in_messages(test: str, answer: str) -> None:
    fragments, _ = split("{% set c = messages[0].content %}{{ " + test + " }}", "user", ["</s> a </s> b"])
    assert fragments == ([answer] if answer else [])


def test_a_cut_at_a_control_token_does_not_protect_the_one_of_the_template() -> None:
    fragments, _ = split("{{ messages[0].content.split('<s>')[0] }}<|end|>", "user", ["hi<s>there"])
    assert fragments == ["hi", 3]
    fragments, _ = split("[INST]{{ messages[0].content.split('<s>')[1] }}", "user", ["hi<s>there"])
    assert fragments == [4, "there"]


def test_private_use_characters_are_text_like_any_other() -> None:
    icons = "".join(map(chr, range(0xF0000, 0xF0100)))
    fragments, _ = split(TEMPLATES[0], "user", [icons + "<s>" + icons])
    assert fragments == [4, icons + "<s>" + icons, 5, 2]
