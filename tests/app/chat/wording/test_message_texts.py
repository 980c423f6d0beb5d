"""The words around a message."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.chat.conversation import Message, MessageState, ReplyFigures
from app.chat.wording.message_texts import MessagePlace, figures, heading, prompt_progress, text_size, thought_title
from engine.messages import Role

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
COSTS = ReplyFigures("model", 1_200, 1_024, 30, 0.214, 42.06)
REPLY = Message(2, 1, Role.ASSISTANT, "text", MessageState.COMPLETE, NOW, COSTS)
ALONE = MessagePlace(1, 1, is_last=True)


def test_headings() -> None:
    clock = f"{NOW.astimezone():%H:%M}"
    assert heading(REPLY, "Qwen3-4B", MessagePlace(2, 3, is_last=True), NOW) == f"Qwen3-4B · ‹ 2/3 › · {clock}"
    assert heading(REPLY, "", ALONE, NOW) == f"Model · {clock}"
    assert heading(replace(REPLY, role=Role.USER), "Qwen3-4B", ALONE, NOW) == f"You · {clock}"
    earlier = NOW - timedelta(days=40)
    text = heading(replace(REPLY, created=earlier), "m", ALONE, NOW)
    assert text == f"m · {earlier.astimezone():%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ((0, 1_000, 0), "Reading ░░░░░░░░░░░░░░░░ 0 of 1,000 tokens"),
        ((750, 1_000, 500), "Reading ▓▓▓▓▓▓▓▓████░░░░ 750 of 1,000 tokens, ▓ 500 reused"),
        ((1_000, 1_000, 0), "Reading ████████████████ 1,000 of 1,000 tokens"),
        ((16, 16, 16), "Reading ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ 16 of 16 tokens, ▓ 16 reused"),
        ((0, 0, 0), "Reading ░░░░░░░░░░░░░░░░ 0 of 0 tokens"),
        ((0, 100, 100), "Reading ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ 0 of 100 tokens, ▓ 100 reused"),
    ],
)
def test_progress(progress: tuple[int, int, int], text: str) -> None:
    assert prompt_progress(*progress) == text


def test_costs() -> None:
    costs = "42.1 tok/s · TTFT 0.21 s · 1,200 tokens · 1,024 reused + 30 computed"
    assert figures(REPLY, "", "g") == costs
    untimed = replace(REPLY, figures=replace(COSTS, decode_tok_s=None))
    assert figures(untimed, "", "g").startswith("TTFT")
    assert figures(replace(REPLY, state=MessageState.STOPPED), "", "g") == f"stopped · g continues · {costs}"
    assert figures(replace(REPLY, state=MessageState.CUT), "", "") == f"cut at its limit · {costs}"
    assert figures(replace(REPLY, figures=None), "", "g") == ""


def test_an_error_is_the_reason() -> None:
    failed = replace(REPLY, state=MessageState.FAILED, figures=None)
    assert figures(failed, "The engine died.", "g") == "failed: The engine died. · g continues"
    assert figures(failed, "", "") == "failed"


def test_thoughts() -> None:
    assert thought_title("one two", 4.21, is_open=False) == "Thought for 4.2 s · 2 words"
    assert thought_title("one", None, is_open=True) == "Thinking · 1 word"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", "0 bytes, 1 line"),
        ("ä", "2 bytes, 1 line"),
        ("x" * 999, "999 bytes, 1 line"),
        ("x" * 1_000 + "\n", "1.0 kB, 2 lines"),
        ("x" * 999_999, "1.0 MB, 1 line"),
        ("x" * 49 + "\n", "50 bytes, 2 lines"),
        (("x" * 49 + "\n") * 20_000, "1.0 MB, 20,001 lines"),
        ("\ud800", "1 byte, 1 line"),
    ],
)
def test_sizes(text: str, size: str) -> None:
    assert text_size(text) == size
