"""The window's edge is never silent: the user chooses what is to become of a chat that has filled it."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from app.chat.conversation import MessageState
from app.chat.screens.window_edge import EdgeScreen
from app.chat.widgets.status_bar import StatusBar
from engine.errors import PromptTooLong
from engine.messages import Loaded, TextRequest
from engine.sequence import FinishReason
from tests.app.chat.driven import Driven, drive

CONTEXT = 100
TOO_LONG = PromptTooLong("The prompt has 160 tokens, and the context holds 100.", 160, CONTEXT)


def words(n: int, first: str) -> str:
    """A text of so many words, which the scripted engine counts as tokens."""
    return " ".join([first, *["word"] * (n - 1)])


def loaded() -> Loaded:
    return Loaded("paged", CONTEXT, None, None)


async def chat_with_turns(driven: Driven, n: int) -> None:
    """So many turns of 10 + 10 tokens."""
    for turn in range(n):
        await driven.send(words(10, f"question{turn}"))
        await driven.until(lambda turn=turn: len(replies(driven)) == turn + 1)
        request = replies(driven)[-1]
        request.say(words(10, f"answer{turn}"))
        request.finish(reused=0, computed=20 * turn + 10)
        await driven.until(lambda: driven.screen.chat.reply is None)
        driven.screen.chat.named = True  # ask for no titles


def replies(driven: Driven) -> list:  # type: ignore[type-arg]
    return [one for one in driven.engine.requests if one.request.priority.name != "BACKGROUND"]


async def overflow(driven: Driven) -> None:
    """A message that does not fit any more."""
    n = len(replies(driven))
    await driven.send(words(20, "last"))
    await driven.until(lambda: len(replies(driven)) == n + 1)
    replies(driven)[-1].fail(TOO_LONG)
    await edge(driven)


async def edge(driven: Driven) -> None:
    """The choice is there, and complete."""
    await driven.until(lambda: isinstance(driven.app.screen, EdgeScreen) and driven.app.screen.is_mounted)
    await driven.until(lambda: remedies(driven) and not driven.app.screen._edge.is_looking)  # type: ignore[attr-defined]


def remedies(driven: Driven) -> list[str]:
    return [str(option.prompt).splitlines()[0] for option in driven.app.screen.query_one(OptionList).options]


def prompt_of(request: TextRequest) -> list[str]:
    assert not isinstance(request.prompt, str)
    return [message.content.split()[0] for message in request.prompt]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_drop_the_oldest_turns(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 4)
        await overflow(driven)
        assert remedies(driven) == [
            "Let the model forget the 4 oldest messages",
            "Go on in a new chat, with a summary",
            "Raise the window to 256 tokens",
            "Leave it as it is",
        ]
        assert driven.shows("60 tokens stay"), "at most three quarters of the window: 20 + 2 * 20"
        assert driven.shows("'answer1 word")
        await driven.pilot.press("enter")
        await driven.until(lambda: len(replies(driven)) == 6)
        assert prompt_of(replies(driven)[-1].request) == ["question2", "answer2", "question3", "answer3", "last"]
        replies(driven)[-1].say("It fits.")
        replies(driven)[-1].finish(reused=0, computed=60)
        await driven.until(lambda: driven.shows("It fits."))
        path = driven.screen.chat.conversation.path()
        assert len(path) == 10, "all messages stay in the chat"
        assert path[-1].state is MessageState.COMPLETE
        assert driven.screen.session.store.load(driven.screen.chat.chat_id).start == path[4].id

    drive(flow, size=size, answer=None, loads=loaded)


def test_go_on_in_a_new_chat_with_a_summary() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 3)
        await overflow(driven)
        old = driven.screen.chat
        await driven.pilot.press("down", "enter")
        await driven.until(lambda: len(replies(driven)) == 5)
        summary = replies(driven)[-1]
        assert prompt_of(summary.request)[-1] == "Summarize"
        assert "last" not in prompt_of(summary.request)
        assert driven.shows("writing a summary")
        summary.say("They talked about words.")
        summary.finish()
        await driven.until(lambda: len(replies(driven)) == 6)
        assert driven.screen.chat is not old
        (message,) = replies(driven)[-1].request.prompt
        assert "They talked about words." in message.content
        assert message.content.endswith(words(20, "last"))
        assert old.conversation.path()[-1].state is MessageState.FAILED

    drive(flow, answer=None, loads=loaded)


def test_a_summary_can_be_stopped() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 3)
        await overflow(driven)
        old = driven.screen.chat
        await driven.pilot.press("down", "enter")
        await driven.until(lambda: len(replies(driven)) == 5)
        await driven.pilot.press("escape")
        await driven.until(lambda: driven.engine.cancelled)
        assert driven.app.screen is driven.screen
        assert driven.screen.chat is old

    drive(flow, answer=None, loads=loaded)


def test_raise_the_window() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 2)
        await overflow(driven)
        await driven.pilot.press("end", "up", "enter")
        await driven.until(lambda: len(replies(driven)) == 4)
        assert driven.engine.opened[-1][1].context == 256
        assert any("256 tokens now" in notice for notice in driven.notices)
        assert prompt_of(replies(driven)[-1].request) == ["question0", "answer0", "question1", "answer1", "last"]
        store = driven.screen.session.store
        assert store.summary(driven.screen.chat.chat_id).settings.context == 256

    drive(flow, answer=None, loads=loaded)


def test_leave_it() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 2)
        await overflow(driven)
        await driven.pilot.press("escape")
        assert driven.app.screen is driven.screen
        assert driven.shows("F6 shows how")
        assert driven.shows("160 of 100 tokens, 160% full: F6")
        await driven.pilot.press("f6")
        await driven.until(lambda: isinstance(driven.app.screen, EdgeScreen))
        await driven.pilot.press("end", "enter")
        assert driven.app.screen is driven.screen
        assert len(replies(driven)) == 3

    drive(flow, answer=None, loads=loaded)


def test_a_message_that_is_too_long_alone() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await driven.send(words(150, "alone"))
        await driven.until(lambda: replies(driven))
        replies(driven)[-1].fail(TOO_LONG)
        await edge(driven)
        assert remedies(driven) == ["Raise the window to 256 tokens", "Leave it as it is"]

    drive(flow, answer=None, loads=loaded)


def test_a_reply_that_filled_the_window() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        await chat_with_turns(driven, 3)
        await driven.send(words(10, "long"))
        await driven.until(lambda: len(replies(driven)) == 4)
        replies(driven)[-1].say(words(20, "begun"))
        replies(driven)[-1].finish(FinishReason.LENGTH, reused=0, computed=79)
        await edge(driven)
        assert driven.shows("is full")
        await driven.pilot.press("enter")
        await driven.until(lambda: len(replies(driven)) == 5)
        assert replies(driven)[-1].request.continued == words(20, "begun")
        replies(driven)[-1].say(" ended")
        replies(driven)[-1].finish()
        await driven.until(lambda: driven.screen.chat.reply is None)
        assert driven.screen.chat.conversation.path()[-1].text == words(20, "begun") + " ended"

    drive(flow, answer=None, loads=loaded)


def test_one_warning_near_the_end() -> None:
    async def flow(driven: Driven) -> None:
        driven.screen.chat.named = True
        for _ in range(2):
            n = len(replies(driven))
            await driven.send("Why?")
            await driven.until(lambda n=n: len(replies(driven)) == n + 1)
            replies(driven)[-1].finish(reused=60, computed=6)  # and 21 of the reply
            await driven.until(lambda: driven.screen.chat.reply is None)
        assert driven.screen.query_one(StatusBar).status.fullness == 0.87
        assert driven.notices.count("The window of this chat is 87% full: F6 makes room.") == 1
        assert driven.shows("87% full: F6")

    drive(flow, answer=None, loads=loaded)


def test_nothing_to_make_room_for() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("f6")
        assert driven.app.screen is driven.screen
        assert driven.notices == ["There is nothing to make room for at this moment."]

    drive(flow)
