"""What the screen says about where a comparison is."""

from __future__ import annotations

from app.compare.events import Turn
from app.compare.raw_phase import rounds
from app.compare.report_tables import lane_name


def turn_words(turn: Turn, repeat: int) -> str:
    """Such as "Session 1 of 2: turn 4", or "pp512 @ d0, round 3 of 5"."""
    number = turn.round + 1
    if turn.phase == "session":
        return f"Session {number} of {max(repeat, number)}: {turn.test}"
    return f"{turn.test}, round {number} of {max(rounds(repeat), number)}"


def who(turn: Turn) -> str:
    """Whose turn it is."""
    return lane_name(turn.lane, turn.variant)


def time_left(seconds: float | None) -> str:
    """Such as "about 2 min left"; "" while nobody knows."""
    if seconds is None:
        return ""
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"
