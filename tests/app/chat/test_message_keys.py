"""What the user does with messages, by keys alone."""

from __future__ import annotations

import pytest

from app.chat.conversation import MessageState
from app.chat.widgets.folds import Fold
from app.chat.widgets.message_view import MessageView
from engine.errors import EngineDied
from engine.messages import Role
from tests.app.chat.driven import Driven, drive
from tests.app.chat.looking import screen_text, transcript, until, until_quiet, until_shown, views

SIZES = [(80, 24), (120, 40)]


def focused(driven: Driven) -> int | None:
    """The number of the message in focus."""
    view = driven.app.focused
    return views(driven).index(view) if isinstance(view, MessageView) else None


async def talk(driven: Driven, *questions: str) -> None:
    """Ask, and be answered."""
    for question in questions:
        await driven.send(question)
        await until(driven, lambda: driven.screen.chat.reply is None)
    await until_quiet(driven)


async def read(driven: Driven, *keys: str) -> None:
    """Go to the last message, and press keys."""
    await driven.pilot.press("shift+tab", *keys)
    await until_quiet(driven)


@pytest.mark.parametrize("size", SIZES)
def test_moving_between_messages(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "one", "two")
        assert driven.composer.has_focus
        for key, number in [("shift+tab", 3), ("up", 2), ("k", 1), ("shift+tab", 0), ("up", 0), ("j", 1), ("down", 2)]:
            await driven.pilot.press(key)
            assert focused(driven) == number, key
        assert "e edit" in screen_text(driven.app)
        await driven.pilot.press("escape")
        assert driven.composer.has_focus
        assert "e edit" not in screen_text(driven.app)
        await driven.pilot.press("shift+tab", "home")
        assert focused(driven) == 0
        await driven.pilot.press("end", "down")
        assert driven.composer.has_focus

    drive(flow, size=size)


def test_an_empty_chat_has_nothing_to_go_to() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("shift+tab")
        assert driven.composer.has_focus

    drive(flow)


@pytest.mark.parametrize("size", SIZES)
def test_regenerating_and_moving_between_branches(size: tuple[int, int]) -> None:
    answers = iter(["first", "second", "third"])

    async def flow(driven: Driven) -> None:
        await talk(driven, "one")
        await read(driven, "r")
        await until_shown(driven, "second")
        assert "‹ 2/2 ›" in screen_text(driven.app)
        assert "first" not in screen_text(driven.app)
        assert focused(driven) == 1
        await driven.pilot.press("left_square_bracket")
        await until_shown(driven, "first")
        assert "‹ 1/2 ›" in screen_text(driven.app)
        assert focused(driven) == 1
        await driven.pilot.press("left")
        await until_quiet(driven)
        assert "‹ 1/2 ›" in screen_text(driven.app)
        await driven.pilot.press("right")
        await until_shown(driven, "second")
        assert focused(driven) == 1

    drive(flow, size=size, answer=lambda request: "Title" if request.max_tokens else next(answers))


def test_a_message_of_the_users_gets_another_reply() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "one")
        await read(driven, "up", "r")
        await until_shown(driven, "‹ 2/2 ›")
        assert [view.message.role for view in views(driven)] == [Role.USER, Role.ASSISTANT]

    drive(flow)


def test_editing_makes_a_branch() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "question")
        await driven.type("half a draft")
        await read(driven, "up", "e")
        assert driven.composer.has_focus
        assert driven.composer.text == "question"
        assert driven.composer.has_class("editing")
        await driven.pilot.press("escape")
        assert driven.composer.text == "half a draft"
        assert not driven.composer.has_class("editing")
        assert views(driven)[0].message.text == "question"
        await read(driven, "up", "e")
        await driven.type(" again", "enter")
        await until_shown(driven, "question again")
        assert "‹ 2/2 ›" in screen_text(driven.app)
        assert driven.sent() == ["question again"]
        assert driven.composer.text == "half a draft"

    drive(flow)


def test_editing_a_reply_asks_for_none() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "question")
        n_requests = len(driven.engine.requests)
        await read(driven, "e")
        await driven.type(" Mine.", "enter")
        await until_shown(driven, "An answer. Mine.")
        assert "‹ 2/2 ›" in screen_text(driven.app)
        assert len(driven.engine.requests) == n_requests

    drive(flow)


def test_copying_a_message_and_its_code() -> None:
    code = "Text [b]x[/b].\n\n```py\nx = 1\n```\n\nMore.\n\n```\ny\n```"

    async def flow(driven: Driven) -> None:
        await talk(driven, "question")
        await read(driven, "c")
        assert driven.app.clipboard == code
        assert driven.notices[-1].startswith("Message copied: ")
        for text, number in [("x = 1\n", 1), ("y\n", 2), ("x = 1\n", 1)]:
            await driven.pilot.press("y")
            assert driven.app.clipboard == text
            assert driven.notices[-1].startswith(f"Code block {number} of 2 copied")
        await driven.pilot.press("up", "c")
        assert driven.app.clipboard == "question"
        assert "y code" not in screen_text(driven.app)
        await driven.screen.run_action("copy_reply")
        assert driven.app.clipboard == code
        await driven.screen.run_action("copy_code")
        assert driven.app.clipboard == "y\n"

    drive(flow, answer=lambda _: f"<think>Hm.\n</think>\n\n{code}")


def test_deleting_and_bringing_back() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "one", "two")
        before = [view.message.id for view in views(driven)]
        await read(driven, "up", "d")
        await until(driven, lambda: len(views(driven)) == 2)
        assert focused(driven) == 1
        assert driven.notices[-1] == "Deleted 2 messages: u brings back what was deleted."
        assert len(driven.screen.session.store.load(driven.screen.chat.chat_id).messages) == 2
        await driven.pilot.press("u")
        await until(driven, lambda: [view.message.id for view in views(driven)] == before)
        await until_shown(driven, "two")
        await driven.pilot.press("u")
        assert driven.notices[-1] == "There is nothing to bring back here."

    drive(flow)


def test_deleting_all_of_it() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "one")
        await read(driven, "up", "d")
        await until(driven, lambda: not views(driven))
        assert driven.composer.has_focus
        await driven.pilot.press("alt+u")
        await until_shown(driven, "An answer.")
        await read(driven, "up", "d")
        await until(driven, lambda: not views(driven))
        await talk(driven, "two")
        assert driven.sent() == ["two"]

    drive(flow)


def test_deleting_a_reply_that_is_written_stops_it() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("one")
        (request,) = driven.engine.requests
        request.say("Word after word")
        await until_shown(driven, "Word after word")
        await read(driven, "d")
        await until(driven, lambda: len(views(driven)) == 1)
        assert driven.engine.cancelled == [request.request_id]
        await driven.pilot.press("u")
        await until_shown(driven, "Word after word")
        await until_shown(driven, "stopped")

    drive(flow, answer=None)


@pytest.mark.parametrize("size", SIZES)
def test_going_on_with_a_stopped_reply(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("one")
        driven.engine.requests[0].say("Half a ")
        await until_shown(driven, "Half a")
        await driven.pilot.press("escape")
        await until_shown(driven, "stopped · g continues")
        await read(driven, "g")
        await until(driven, lambda: len(driven.engine.requests) == 2)
        assert driven.engine.requests[1].request.continued == "Half a "
        driven.engine.requests[1].say("sentence.")
        await until_shown(driven, "Half a sentence.")
        driven.engine.requests[1].finish()
        await until_shown(driven, "32 reused + 10 computed")
        assert "stopped" not in screen_text(driven.app)
        assert len(views(driven)) == 2

    drive(flow, size=size, answer=None)


def test_only_the_last_reply_goes_on() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("one")
        driven.engine.requests[0].say("Half")
        await driven.pilot.press("escape")
        await driven.send("two")
        await until(driven, lambda: len(views(driven)) == 4)
        await until_quiet(driven)
        assert "stopped" in screen_text(driven.app)
        assert "g continues" not in screen_text(driven.app)
        n_requests = len(driven.engine.requests)
        await read(driven, "up", "up", "g")
        assert len(driven.engine.requests) == n_requests

    drive(flow, answer=None)


def test_a_failed_reply_says_why_and_goes_on() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("one")
        driven.engine.requests[0].say("Half")
        driven.engine.requests[0].fail(EngineDied("It [b]died[/b]."))
        await until_shown(driven, "failed: It [b]died[/b].")
        await read(driven, "g")
        await until(driven, lambda: len(driven.engine.requests) == 2)
        await until_shown(driven, "Half")
        assert "failed" not in screen_text(driven.app).split("Half")[1]

    drive(flow, answer=None)


def test_a_thought_is_folded_and_unfolded() -> None:
    async def flow(driven: Driven) -> None:
        await driven.send("one")
        (request,) = driven.engine.requests
        for piece in ("<thi", "nk>\nSecret ", "reasons.\n"):
            request.say(piece)
        await until_shown(driven, "Thinking for")
        await until_shown(driven, "2 words")
        assert "Secret" not in screen_text(driven.app)
        await read(driven, "enter")
        await until_shown(driven, "Secret reasons.")
        request.say("\nMore of them.</think>\n\nThe answer.")
        await until_shown(driven, "The answer.")
        await until_shown(driven, "More of them.")
        assert "</think>" not in screen_text(driven.app)
        request.finish()
        await until_shown(driven, "Thought for")
        await until_shown(driven, "5 words")
        await driven.pilot.press("space")
        await until(driven, lambda: "Secret" not in screen_text(driven.app))
        assert driven.screen.chat.conversation.path()[-1].state is MessageState.COMPLETE

    drive(flow, answer=None)


def test_a_click_unfolds_too() -> None:
    async def flow(driven: Driven) -> None:
        await talk(driven, "one")
        await driven.pilot.click(".fold-title")
        await until_shown(driven, "Secret")

    drive(flow, answer=lambda _: "<think>Secret</think>Yes.")


@pytest.mark.parametrize("size", SIZES)
def test_a_long_message_is_folded(size: tuple[int, int]) -> None:
    text = "".join(f"line {number} [b]of[/b] **many** lines that are pasted\n" for number in range(20_000))

    async def flow(driven: Driven) -> None:
        driven.screen.session.send(driven.screen.chat, text)
        await until_shown(driven, "▶ 1.0 MB, 20,001 lines")
        assert "line 0 [b]of[/b] **many** lines" in screen_text(driven.app)
        assert "line 9 " not in screen_text(driven.app)
        await read(driven, "up", "enter")
        await until_shown(driven, "line 9 [b]of[/b] **many**")
        await until_quiet(driven)
        assert len(driven.screen.query("*")) < 300
        fold = views(driven)[0].query_one(Fold)
        assert fold.size.height > 20_000
        transcript(driven).jump(10_000)
        await until_quiet(driven)
        assert "line 10000 " in screen_text(driven.app)
        await driven.pilot.press("enter")
        await until_shown(driven, "▶ 1.0 MB")
        assert fold.size.height < 20

    drive(flow, size=size)


def test_keys_can_be_changed() -> None:
    async def flow(driven: Driven) -> None:
        driven.app.set_keymap({"message_copy": "z", "message_continue": "f9"})
        await driven.send("one")
        driven.engine.requests[0].say("Text")
        await driven.pilot.press("escape")
        await until_shown(driven, "F9 continues")
        await read(driven, "c")
        assert driven.app.clipboard == ""
        assert "z copy" in screen_text(driven.app)
        await driven.pilot.press("z")
        assert driven.app.clipboard == "Text"

    drive(flow, answer=None)
