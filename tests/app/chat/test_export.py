"""Exported chats: read by a JSON parser and a Markdown parser that are not ours, and shown by `cat`."""

from __future__ import annotations

import itertools
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from app.chat.conversation import Conversation, Message, MessageState, ReplyFigures
from app.chat.errors import ExportError
from app.chat.export import free_path, safe_file_name, to_json, to_markdown, write_export
from engine.messages import Role

CREATED = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
ESCAPES = "red \x1b[31m, title \x1b]0;x\x07, C1 \x9b31m, DEL \x7f, bidi \u202e, bell \a, back \b\r"
TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def conversation(*texts: str, state: MessageState = MessageState.COMPLETE) -> Conversation:
    """The texts as turns of the user and the model by turns; the last one ended in that state."""
    chat = Conversation(7)
    for number, text in enumerate(texts, 1):
        role = Role.USER if number % 2 else Role.ASSISTANT
        ended = state if number == len(texts) else MessageState.COMPLETE
        chat.put(Message(number, number - 1 or None, role, text, ended, CREATED))
        chat.leaf = number
    return chat


def branched() -> Conversation:
    """Two replies to one question; the first one is shown."""
    chat = conversation("Question", "First")
    figures = ReplyFigures("model", 10, 16, 4, 0.25, None, 1.5)
    chat.put(Message(3, 1, Role.ASSISTANT, "Second", MessageState.STOPPED, CREATED, figures))
    return chat


def test_json_has_all_branches() -> None:
    content = json.loads(to_json(branched(), "Title"))
    exported = datetime.fromisoformat(content.pop("exported"))
    assert exported.tzinfo is not None
    message = {"created": "2026-01-02T03:04:05.678000+00:00", "figures": None, "state": "complete"}
    figures = {
        "model": "model",
        "generated_tokens": 10,
        "reused_tokens": 16,
        "computed_tokens": 4,
        "ttft_s": 0.25,
        "decode_tok_s": None,
        "thought_s": 1.5,
    }
    assert content == {
        "format": "octavo-chat",
        "version": 1,
        "title": "Title",
        "path": [1, 2],
        "messages": [
            message | {"id": 1, "parent": None, "role": "user", "text": "Question"},
            message | {"id": 2, "parent": 1, "role": "assistant", "text": "First"},
            message
            | {"id": 3, "parent": 1, "role": "assistant", "text": "Second", "state": "stopped", "figures": figures},
        ],
    }


def test_json_has_the_path_alone_if_asked() -> None:
    content = json.loads(to_json(branched(), "Title", branches=False))
    assert [message["text"] for message in content["messages"]] == ["Question", "First"]


def test_markdown_has_the_path() -> None:
    text = to_markdown(branched(), "A title")
    assert text == "# A title\n\n## You\n\nQuestion\n\n## Model\n\nFirst\n"


def test_markdown_says_who_wrote_and_how_it_ended() -> None:
    chat = branched()
    chat.leaf = 3
    assert "## Model\n\n*model, stopped*\n\nSecond\n" in to_markdown(chat, "A title")


def test_an_empty_chat() -> None:
    assert to_markdown(Conversation(1), "") == "# Chat\n"
    assert json.loads(to_json(Conversation(1), ""))["messages"] == []


def test_a_thought_is_folded_and_the_users_text_is_not_taken_apart() -> None:
    text = to_markdown(conversation("<think>mine</think>", "<think>Hm.</think>\n\nYes."), "Title")
    assert "<details><summary>Thought</summary>\n\nHm.\n\n</details>\n\nYes.\n" in text
    assert "## You\n\n<think>mine</think>\n" in text


def test_nothing_acts_on_a_terminal() -> None:
    chat = conversation(ESCAPES, ESCAPES)
    for text in (to_json(chat, ESCAPES), to_markdown(chat, ESCAPES)):
        assert not TERMINAL.search(text.replace("\n", ""))
    content = json.loads(to_json(chat, ESCAPES))
    assert content["title"] == ESCAPES
    assert [message["text"] for message in content["messages"]] == [ESCAPES, ESCAPES]
    assert "red ␛[31m" in to_markdown(chat, "Title")


def test_lines_of_windows_are_lines() -> None:
    assert "one\ntwo\n" in to_markdown(conversation("one\r\ntwo"), "Title")


@pytest.mark.parametrize(
    "unfinished",
    [
        "```python\nprint(1)",
        "~~~\n```\n## no heading\n```",
        "````md\n```\ninner\n```\n",
        "   ```\n``` not the end",
        "```a\n```\n```\nagain",
        "``` `no` fence\n```\nbut this",
    ],
)
def test_an_open_code_block_does_not_swallow_the_next_message(unfinished: str) -> None:
    text = to_markdown(conversation(unfinished, "Answer", "More"), "Title")
    tokens = itertools.pairwise(MarkdownIt().parse(text))
    headings = [content.content for opening, content in tokens if opening.type == "heading_open"]
    assert headings == ["Title", "You", "Model", "You"]


@pytest.mark.parametrize("finished", ["```\nx\n```", "~~~~\n~~~\n~~~~~", "`x` ```y```", "a ``` b"])
def test_a_closed_code_block_stays_as_it_is(finished: str) -> None:
    assert to_markdown(conversation(finished), "T") == f"# T\n\n## You\n\n{finished}\n"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("How to bake bread?", "How-to-bake-bread"),
        ("../../etc/passwd", "etc-passwd"),
        ("C:\\x|y*z", "C-x-y-z"),
        ("北京 & Köln", "北京-Köln"),
        ("\x1b[31m", "31m"),
        ("-rf", "rf"),
        ("", "chat"),
        ("???", "chat"),
        ("con", "chat-con"),
        ("LPT1.txt", "chat-LPT1.txt"),
        ("console", "console"),
    ],
)
def test_names_of_files(title: str, name: str) -> None:
    assert safe_file_name(title) == name


def test_a_long_title_fits_a_file_system(tmp_path: Path) -> None:
    (tmp_path / (safe_file_name("長" * 1000) + ".json")).touch()


def test_files_are_written_beside_those_that_are_there(tmp_path: Path) -> None:
    for expected in ("A-chat.md", "A-chat-2.md"):
        path = free_path(tmp_path, "A chat", ".md")
        assert path == tmp_path / expected
        write_export(path, "text ä\n")
        assert path.read_bytes() == "text ä\n".encode()
    assert free_path(tmp_path, "A chat", ".json").name == "A-chat.json"
    with pytest.raises(ExportError, match="already"):
        write_export(path, "other")
    assert path.read_text("utf-8") == "text ä\n"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="missing"):
        free_path(tmp_path / "missing", "A chat", ".md")
    with pytest.raises(ExportError, match="missing"):
        write_export(tmp_path / "missing" / "a.md", "text")
