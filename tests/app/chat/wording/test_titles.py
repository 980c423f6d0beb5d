"""Titles that small models give, among them those that the starter model gave, and what becomes of them."""

from __future__ import annotations

import pytest

from app.chat.wording.titles import can_be_found, found_title, given_title, provisional_title


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ('Banana Bread"', "Banana Bread"),
        ('How to undo a Git commit"', "How to undo a Git commit"),
        ('Python\'s slicing feature"\n\nIt is about slices.', "Python's slicing feature"),
        ('Banana Bread Recipe"\n\nThis conversation is in the language of "Title"', "Banana Bread Recipe"),
        ('The Sky" is a topic in its language, but it\'s a poetic term', "The Sky"),
        ("The title of this conversation is: Baking bread.", "Baking bread"),
        ("The title of this conversation is about baking bread.", "Baking bread"),
        ("Here's a possible title for the conversation:\n\n**Perfect Banana Bread**", "Perfect Banana Bread"),
        ("Here is a title: Title: Octopuses", "Octopuses"),
        ("Title: 'Octopuses'", "Octopuses"),
        ("topic: octopuses", "Octopuses"),
        ("Thema: Herbstgedichte", "Herbstgedichte"),
        ("This conversation is about a recipe for banana bread.", "A recipe for banana bread"),
        ("## **Hearts of an octopus**", "Hearts of an octopus"),
        ("`git reset` and its *modes*.", "git reset` and its *modes"),
        ("„Der Herbst“", "Der Herbst"),
        ("空はなぜ青いのか", "空はなぜ青いのか"),
        ("Topics of the day", "Topics of the day"),
        ("Title IX of the law", "Title IX of the law"),
        ("Iceland in three days", "Iceland in three days"),
        ("C++", "C++"),
        ("What is a monad?", "What is a monad?"),
        ("One " + "verylongword " * 6, "One verylongword verylongword verylongword verylongword…"),
    ],
)  # fmt: skip
def test_the_title_in_an_answer(answer: str, title: str) -> None:
    assert found_title(answer) == title


@pytest.mark.parametrize(
    "answer",
    [
        *("", "\n\n", '""', "**", "Title:", "Topic: \"", "The title of this conversation is"),
        *("Conversation", "Chat history", "New chat", "Untitled", "This conversation"),
        *("I'm ready to help. What's the topic of your conversation?", "I'll summarize your request in 2 to 6 words."),
        *("Sure, what would you like?", "As an AI language model, I cannot", "Sorry, no."),
        "The topic of this conversation in at most 6 words is",
        "A function that is concise and efficient, which makes it a great example of what Python can do",
    ],
)  # fmt: skip
def test_an_answer_without_a_title(answer: str) -> None:
    assert found_title(answer) == ""


def test_there_has_to_be_something_to_go_by() -> None:
    assert not can_be_found("hi")
    assert not can_be_found("  hello     \n there  ")
    assert can_be_found("Why is it blue?")
    assert can_be_found("这句话用英语怎么说才比较自然")


def test_the_beginning_of_what_the_user_wrote() -> None:
    assert provisional_title("  Why is\nthe sky blue? ") == "Why is the sky blue?"
    assert provisional_title("word " * 20) == "word " * 10 + "word…"
    assert len(provisional_title("x" * 100)) == 60


def test_a_title_of_the_user_is_kept_on_one_line() -> None:
    assert given_title(' "My"\n title: ') == '"My" title:'
    assert len(given_title("x" * 500)) == 200
