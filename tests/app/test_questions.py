"""Whether somebody can be asked; the questions themselves are in the tests of the commands that ask them."""

from __future__ import annotations

import io
import sys

import pytest

from app.questions import can_ask

STREAMS = ("stdin", "stdout", "stderr")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_where_all_streams_are_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in STREAMS:
        monkeypatch.setattr(sys, name, Terminal())
    assert can_ask()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("other", [None, io.StringIO()])
def test_not_where_one_is_redirected_or_closed(
    name: str, other: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in STREAMS:
        monkeypatch.setattr(sys, each, other if each == name else Terminal())
    assert not can_ask()
