"""How messages are shown, while they are written and afterwards."""

from __future__ import annotations

import pytest
from textual.widgets.markdown import MarkdownFence

from app.chat.conversation import MessageState
from app.chat.preferences.settings import ChatSettings
from app.chat.widgets.section_views import MarkdownSection
from engine.messages import Role
from engine.printable import UNSAFE
from tests.app.chat.driven import Driven, drive
from tests.app.chat.looking import lines_of, screen_text, transcript, until, until_quiet, until_shown, views
from tests.app.chat.scripted_engine import ScriptedRequest

SIZES = [(80, 24), (120, 40)]
SCROLL_BAR = " ▁▂▃▄▅▆▇█"
LONG = "".join(
    f"## Heading {number}\n\nParagraph {number} of **many**, with words that are wrapped where the window ends.\n\n"
    f"- item {number}\n\n```py\nx = {number}\n```\n\n"
    for number in range(2_500)
)


async def ask(driven: Driven) -> ScriptedRequest:
    """Ask, and begin to be answered."""
    await driven.send("A question")
    await until(driven, lambda: len(views(driven)) >= 2)
    return driven.engine.requests[-1]


async def stored(driven: Driven, *texts: str) -> None:
    """Open a chat that has been stored."""
    store = driven.screen.session.store
    chat_id, parent = store.create_chat(ChatSettings(), "Stored", named=True).id, None
    for number, text in enumerate(texts):
        role = Role.ASSISTANT if number % 2 else Role.USER
        parent = store.add_message(chat_id, parent, role, text, MessageState.COMPLETE).id
    await driven.screen.open_chat(chat_id)
    await until_quiet(driven)


def top_line(driven: Driven) -> str:
    """The first line of the transcript that has words."""
    return next(line.strip() for line in lines_of(driven, transcript(driven)) if len(line.strip()) > 3)


def numbered_words(n: int) -> str:
    """Markdown in which every word has its number: w0 w1 …"""
    words = [f"w{number}" for number in range(n)]
    paragraphs = [" ".join(words[start : start + 50]) for start in range(0, n, 50)]
    return "\n\n".join("- " * (number % 3 == 2) + paragraph for number, paragraph in enumerate(paragraphs))


@pytest.mark.parametrize("size", SIZES)
def test_a_fence_that_is_opened_and_closed_in_pieces(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        for piece in ("Look:\n\n``", "`py", "thon\nx ", "= 1\n", "# no heading\n`", "``", "\n\n**Do", "ne**."):
            request.say(piece)
            await driven.pilot.pause(0.02)
        await until_shown(driven, "Done.")
        request.finish()
        await until_shown(driven, "computed")
        assert "`" not in screen_text(driven.app)
        (fence,) = driven.screen.query(MarkdownFence)
        assert (fence.lexer, fence.code) == ("python", "x = 1\n# no heading")
        text = [line.strip() for line in lines_of(driven, views(driven)[1]) if line.strip()]
        assert text[1:5] == ["Look:", "x = 1", "# no heading", "Done."]

    drive(flow, size=size, answer=None)


def test_a_stored_reply_looks_like_one_that_has_been_written() -> None:
    async def flow(driven: Driven) -> None:
        text = LONG[:1_500]
        request = await ask(driven)
        for start in range(0, len(text), 37):
            request.say(text[start : start + 37])
            await driven.pilot.pause()
        request.finish()
        await until_shown(driven, "computed")
        await until_quiet(driven)
        written = lines_of(driven, views(driven)[1])
        await driven.screen.action_new_chat()
        await driven.screen.open_chat(1)
        await until_quiet(driven)
        assert lines_of(driven, views(driven)[1]) == written

    drive(flow, size=(80, 300), answer=None)


def test_nothing_is_lost_that_comes_while_widgets_are_made() -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say(numbered_words(3_000))
        await until_shown(driven, "w2999")
        for number in range(30):
            view = transcript(driven)
            view.jump(view.max_scroll_y * (number % 3) // 2)
            for _ in range(3):
                request.say("\n\n```\n" * (number % 7 == 0) + f"and e{number}, ")
                await driven.pilot.pause(0.01)
        request.finish()
        await until_shown(driven, "computed")
        await until_quiet(driven)
        written = lines_of(driven, transcript(driven))
        assert sum(line.count("e29,") for line in written) == 3
        await driven.screen.action_new_chat()
        await driven.screen.open_chat(1)
        await until_quiet(driven)
        assert [line.rstrip(SCROLL_BAR) for line in lines_of(driven, transcript(driven))] == [
            line.rstrip(SCROLL_BAR) for line in written
        ]

    drive(flow, size=(80, 60), answer=None)


def test_nothing_in_a_text_acts() -> None:
    odd = "[bold]x[/bold] [@click=app.quit]y[/] <b>z</b> &#x202e; \x1b[32m \u202e$(w)"

    async def flow(driven: Driven) -> None:
        await driven.send(odd)
        request = driven.engine.requests[-1]
        for character in odd + "\r\n\r\nnext\rlast [link](javascript:x) \x1b":
            request.say(character)
        await until_shown(driven, "last")
        request.finish()
        await until_shown(driven, "computed")
        text = screen_text(driven.app)
        assert not UNSAFE.search(text.replace("\n", ""))
        assert text.count("[bold]x[/bold] [@click=app.quit]y[/] <b>z</b>") == 2
        assert "<b>z</b> <U+202E> ␛[32m <U+202E>$(w)" in text
        assert "next␍last" in text
        metas = [meta for line in driven.app.screen._compositor.render_strips() for meta in line_metas(line)]
        assert not any("@click" in meta for meta in metas)

    drive(flow, answer=None)


def line_metas(line: object) -> list[dict[str, object]]:
    return [segment.style.meta for segment in line if segment.style is not None]  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", SIZES)
def test_the_prompts_progress(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        await until_shown(driven, "Waiting for the model")
        request.read(600, 1_000, 250)
        await until_shown(driven, "Reading ▓▓▓▓██████░░░░░░ 600 of 1,000 tokens, ▓ 250 reused")
        request.say("Text")
        await until_shown(driven, "Text")
        assert "Reading" not in screen_text(driven.app)

    drive(flow, size=size, answer=None)


@pytest.mark.parametrize("size", SIZES)
def test_it_follows_the_end_until_the_user_scrolls_up(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        for number in range(60):
            request.say(f"Line {number} is this.\n\n")
        await until_shown(driven, "Line 59 is")
        await until_quiet(driven)
        await driven.pilot.press("shift+tab", "pageup")
        await until_quiet(driven)
        assert "Line 59 is" not in screen_text(driven.app)
        before = [line.rstrip(SCROLL_BAR) for line in lines_of(driven, transcript(driven))]  # without the scroll bar
        request.say("Line 60 is this.\n\n")
        await until_shown(driven, "↓ new text")
        await until_quiet(driven)
        assert [line.rstrip(SCROLL_BAR) for line in lines_of(driven, transcript(driven))] == before
        await driven.pilot.press("escape", "ctrl+end")
        await until_shown(driven, "Line 60 is")
        assert "↓ new text" not in screen_text(driven.app)
        request.say("Line 61 is this.")
        await until_shown(driven, "Line 61 is")

    drive(flow, size=size, answer=None)


def test_the_wheel_scrolls_and_comes_back_to_the_end() -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say("\n\n".join(f"Line {number} is this." for number in range(60)))
        await until_shown(driven, "Line 59 is")
        await until_quiet(driven)
        view = transcript(driven)
        view.scroll_up(animate=False)
        view.scroll_up(animate=False)
        await until_quiet(driven)
        assert not view.follows
        request.say("\n\nLine 60 is this.")
        await until_shown(driven, "↓ new text")
        assert "Line 60 is" not in screen_text(driven.app)
        view.scroll_end(animate=False, immediate=True)
        await until_shown(driven, "Line 60 is")
        assert view.follows

    drive(flow, answer=None)


@pytest.mark.parametrize("size", SIZES)
def test_a_chat_of_hundreds_of_kilobytes(size: tuple[int, int]) -> None:
    async def flow(driven: Driven) -> None:
        await stored(driven, "Tell me all.", LONG)
        assert len(LONG) > 300_000
        assert "x = 2499" in screen_text(driven.app)
        assert len(driven.screen.query("*")) < 800
        view = transcript(driven)
        assert view.follows
        seen = [top_line(driven)]
        for _ in range(8):
            view.action_page_up()
            await until_quiet(driven)
            seen.append(top_line(driven))
        assert len(set(seen)) == 9
        numbers = [int(word) for line in seen for word in line.split() if word.isdigit()]
        assert numbers == sorted(numbers, reverse=True)
        await driven.pilot.press("shift+tab", "home")
        await until_shown(driven, "Tell me all.")
        await until_shown(driven, "Heading 0")
        await until_quiet(driven)
        assert view.scroll_y == 0
        assert len(driven.screen.query("*")) < 800
        assert len([one for one in driven.screen.query(MarkdownSection) if one.is_built]) < 40
        await driven.pilot.press("end")
        await until_shown(driven, "x = 2499")

    drive(flow, size=size)


def test_leafing_shows_every_line_once() -> None:
    """A page down shows what is below the last line, wherever widgets are made or dropped meanwhile."""

    async def flow(driven: Driven) -> None:
        await stored(driven, "Tell me.", LONG[:12_000])
        view = transcript(driven)
        await driven.pilot.press("shift+tab", "home")
        await until_quiet(driven)
        shown: list[int] = []
        while not view.follows:
            lines = lines_of(driven, view)
            shown += [int(line.split()[1]) for line in lines if line.strip().startswith("Heading")]
            view.action_page_down()
            await until_quiet(driven)
        numbers = sorted(set(shown))
        assert numbers == list(range(numbers[-1] + 1))
        assert numbers[-1] > 50

    drive(flow)


def test_another_chat_during_a_reply() -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say("<think>Hm.</think>\n\nOne ")
        await until_shown(driven, "One")
        await driven.pilot.press("ctrl+n")
        await until(driven, lambda: not views(driven))
        request.say("two ")
        await driven.pilot.pause()
        assert "two" not in screen_text(driven.app)
        request.say("three ")
        await driven.screen.open_chat(1)
        request.say("four ")
        await until_shown(driven, "One two three four")
        await driven.screen.action_new_chat()
        request.say("five.")
        request.finish()
        await until(driven, lambda: driven.screen.session.store.load(1).messages[2].state is MessageState.COMPLETE)
        await driven.screen.open_chat(1)
        await until_shown(driven, "One two three four five.")
        await until_shown(driven, "computed")
        assert screen_text(driven.app).count("two") == 1

    drive(flow, answer=None)


def test_another_branch_during_a_reply() -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say("First.")
        request.finish()
        await until_shown(driven, "computed")
        await driven.pilot.press("shift+tab", "r")
        await until_shown(driven, "‹ 2/2 ›")
        request = driven.engine.requests[-1]
        request.say("Sec")
        await until_shown(driven, "Sec")
        await driven.pilot.press("left_square_bracket")
        await until_shown(driven, "First.")
        request.say("ond ")
        await driven.pilot.pause()
        assert "ond" not in screen_text(driven.app).replace("Second", "").split("Write")[0].split("First")[1]
        await driven.pilot.press("right_square_bracket")
        request.say("reply.")
        await until_shown(driven, "Second reply.")

    drive(flow, answer=None)


def test_leaving_during_a_reply() -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say("Half a ")
        await until_shown(driven, "Half a")
        request.say("sentence")
        driven.app.exit()

    drive(flow, answer=None)


def test_many_short_messages() -> None:
    async def flow(driven: Driven) -> None:
        await stored(driven, *(f"Message {number}" for number in range(400)))
        assert "Message 399" in screen_text(driven.app)
        assert len(driven.screen.query("*")) < 900
        await driven.pilot.press("shift+tab", "home")
        await until_shown(driven, "Message 0")

    drive(flow)


def test_finding_a_message() -> None:
    async def flow(driven: Driven) -> None:
        await stored(driven, *(f"Message {number}" for number in range(100)))
        await driven.screen.open_chat(1, 21)
        await until_shown(driven, "Message 20")
        assert driven.app.focused is views(driven)[20]

    drive(flow)
