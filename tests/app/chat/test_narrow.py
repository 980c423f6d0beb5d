"""A very small terminal: what is said can be read."""

from __future__ import annotations

from tests.app.chat.driven import Driven, drive

SMALL = (40, 12)


def test_the_pool_is_not_wider_than_the_terminal() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("f2")
        await driven.until(lambda: driven.shows(" KV pool"))

    drive(flow, size=SMALL)


def test_the_help_is_below_the_keys_where_it_does_not_fit_beside_them() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("f1")
        await driven.until(lambda: driven.shows("/model [NAME]"))
        assert driven.shows("Choose the model of")

    drive(flow, size=SMALL)


def test_the_help_is_beside_the_keys_where_there_is_room() -> None:
    async def flow(driven: Driven) -> None:
        await driven.pilot.press("f1")
        await driven.until(lambda: driven.shows("/model [NAME]             Choose the model of this chat"))

    drive(flow, size=(80, 24))
