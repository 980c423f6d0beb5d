"""What the user reads stays where it is, when the window changes its size while a reply is written."""

from __future__ import annotations

import re

import pytest

from tests.app.chat.driven import Driven, drive
from tests.app.chat.looking import lines_of, screen_text, transcript, until_quiet, until_shown
from tests.app.chat.test_transcript import SCROLL_BAR, ask, numbered_words, stored


@pytest.mark.parametrize("height", [24, 40])
def test_resizing_while_streaming_keeps_the_place(height: int) -> None:
    """What is read stays within two lines of the top at any width; at the same width, every line is where it was."""

    async def flow(driven: Driven) -> None:
        text = numbered_words(8_000)
        request = await ask(driven)
        request.say(text)
        await until_shown(driven, "w7999")
        await until_quiet(driven)
        transcript(driven).jump(transcript(driven).max_scroll_y // 2)
        await until_quiet(driven)
        seen = numbers_of(driven)
        assert 2_000 < seen[0] < 6_000
        for width in (60, 40, 141, 80, 200, 33, 100, 80):
            request.say(f"word w{width} ")
            await driven.pilot.resize_terminal(width, height)
            await until_quiet(driven)
            assert not transcript(driven).follows
            assert abs(numbers_of(driven)[0] - seen[0]) <= 2 * width // len("w1234 "), width
        assert numbers_of(driven) == seen[: len(numbers_of(driven))]  # a line is taken by "new text"

    drive(flow, size=(80, height), answer=None)


@pytest.mark.parametrize("height", [24, 40])
def test_resizing_while_streaming_stays_at_the_end(height: int) -> None:
    async def flow(driven: Driven) -> None:
        request = await ask(driven)
        request.say(numbered_words(4_000))
        await until_shown(driven, "w3999")
        for number, width in enumerate((60, 40, 141, 80, 200, 33, 100, 80)):
            await driven.pilot.resize_terminal(width, height + number)
            await until_quiet(driven)
            assert "w3999" in screen_text(driven.app), width
            assert transcript(driven).follows
            request.say(f"\n\nEnd {number}.")
            await until_shown(driven, f"End {number}.")
            assert transcript(driven).scroll_y == transcript(driven).max_scroll_y

    drive(flow, size=(80, height), answer=None)


@pytest.mark.parametrize(("size", "keys"), [((110, 30), ["ctrl+b"] * 4), ((160, 40), ["f2", "ctrl+b"] * 4)])
def test_what_opens_beside_it_takes_its_room(size: tuple[int, int], keys: list[str]) -> None:
    """Where the sidebar or the pool leave less room or more, every line is wrapped for that."""

    async def flow(driven: Driven) -> None:
        await stored(driven, "Tell me.", numbered_words(3_000))
        transcript(driven).jump(transcript(driven).max_scroll_y // 2)
        await until_quiet(driven)
        first, widths = numbers_of(driven)[0], set()
        for key in keys:
            await driven.pilot.press(key)
            await until_quiet(driven)
            lines = [line.rstrip(SCROLL_BAR) for line in lines_of(driven, transcript(driven))]
            width = transcript(driven).size.width
            widths.add(width)
            assert width - 20 < max(map(len, lines)) <= width
            numbers = numbers_of(driven)
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert abs(numbers[0] - first) <= 2 * width // len("w1234 ")
        assert len(widths) == len({*keys}) * 2

    drive(flow, size=size)


def numbers_of(driven: Driven) -> list[int]:
    """The numbers of the words in the window."""
    return [int(number) for number in re.findall(r"w(\d+)", "\n".join(lines_of(driven, transcript(driven))))]
