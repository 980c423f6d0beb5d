"""The status line: what matters is there, however narrow the terminal is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.wording.status import SEPARATOR, Status, fitted, parts_of
from engine.messages import Loaded
from tests.app.chat.scripted_engine import KV

READY = Status("SmolLM2-135M-Instruct.Q4_1", None, Loaded("paged", 2048, None, None), used=1024, kv=KV)


def line(status: Status, width: int) -> str:
    return SEPARATOR.join(text for _, text in fitted(parts_of(status), width))


def test_everything_where_there_is_room() -> None:
    expected = (
        "SmolLM2-135M-Instruct.Q4_1  ·  paged  ·  ▰▰▰▰▰▱▱▱▱▱ 1,024 of 2,048 tokens  ·  "
        "KV 20.0 KiB, contiguous 128.0 KiB"
    )
    assert line(READY, 200) == expected
    busy = replace(READY, elsewhere=2, unread=1)
    assert line(busy, 200) == f"{expected}  ·  2 more being answered, 1 unread"


def test_eighty_columns_have_room_for_model_window_and_memory() -> None:
    text = line(replace(READY, elsewhere=1), 78)
    for part in ("SmolLM2", "1,024 of 2,048", "KV 20.0 KiB/128.0 KiB", "◌1"):
        assert part in text


STATUSES = st.builds(
    Status,
    model=st.text(max_size=60),
    loading=st.none() | st.floats(0, 1),
    loaded=st.none() | st.builds(Loaded, st.just("paged"), st.integers(256, 10**7), st.none(), st.none()),
    is_down=st.booleans(),
    used=st.none() | st.integers(0, 10**7),
    kv=st.none() | st.just(KV),
    elsewhere=st.integers(0, 300),
    unread=st.integers(0, 300),
)


@given(STATUSES, st.integers(0, 200))
def test_it_fits(status: Status, width: int) -> None:
    assert len(line(status, width)) <= width
    assert "\n" not in line(status, width)
    assert "\x1b" not in line(status, width)


@given(STATUSES, st.integers(0, 150))
def test_more_room_never_shows_fewer_parts(status: Status, width: int) -> None:
    narrow, wide = (dict(fitted(parts_of(status), columns)) for columns in (width, width + 20))
    assert set(narrow) <= set(wide)


@pytest.mark.parametrize(("used", "warns"), [(None, False), (0, False), (1740, False), (1741, True), (2300, True)])
def test_a_window_that_is_nearly_full_warns(used: int | None, warns: bool) -> None:
    for width in (200, 78, 30):
        names = [name for name, _ in fitted(parts_of(replace(READY, used=used)), width)]
        assert ("warning" in names) == warns
    if warns:
        assert "full: F6" in line(replace(READY, used=used, room_key="F6"), 30)


def test_loading_and_a_dead_engine() -> None:
    assert line(Status("M", loading=0.5), 80) == "M  ·  loading 50%"
    assert line(Status("M", is_down=True), 80) == "M  ·  the engine has stopped"
    assert line(Status(), 80) == "no model"
