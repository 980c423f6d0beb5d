"""What the runner tells while it runs, for a status line or a screen to draw. Events come on the runner's thread."""

from __future__ import annotations

from dataclasses import dataclass

from app.compare.record import LaneError, RawSample, Record, StepSample


@dataclass(frozen=True)
class Loading:
    """The fraction of a variant's model that is loaded, from 0 to 1."""

    lane: str
    variant: str
    fraction: float


@dataclass(frozen=True)
class Turn:
    """A variant begins with a test or a step of the session. round: from 0; warm-ups are not announced.

    done: the part of all work that is done, from 0 to 1. seconds_left: None while nobody can know.
    """

    phase: str
    test: str
    lane: str
    variant: str
    round: int
    done: float
    seconds_left: float | None


@dataclass(frozen=True)
class AnswerText:
    """The next piece of the answer of the turn that runs."""

    lane: str
    variant: str
    text: str


@dataclass(frozen=True)
class Measured:
    """The turn has ended with this."""

    sample: RawSample | StepSample


@dataclass(frozen=True)
class LaneFailed:
    """A variant leaves the phase, or cannot do one test; the others go on."""

    error: LaneError


@dataclass(frozen=True)
class Ended:
    """The last event: everything is measured, or the user has stopped it."""

    record: Record


Event = Loading | Turn | AnswerText | Measured | LaneFailed | Ended
