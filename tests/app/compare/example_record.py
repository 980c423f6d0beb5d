"""A small record with everything that a record can hold, in round figures."""

from __future__ import annotations

from app.compare.lanes import LaneMemory, Times
from app.compare.record import Busy, Difference, LaneError, LaneFacts, RawSample, Record, StepSample
from tests.app.compare.fake_lane import new_record

CONTIGUOUS_MEMORY = LaneMemory(20 * 2**20, 180 * 2**20, 180 * 2**20, 400 * 2**20)
PAGED_MEMORY = LaneMemory(30 * 2**20, 31 * 2**20, 60 * 2**20, 300 * 2**20)


def example_record() -> Record:
    """Two lanes and a server; the second lane is faster in the session and in one of two tests."""
    record = new_record(("contiguous", "paged", "localhost:8080"))
    record.is_complete = True
    record.busy = Busy(0.02, 0.61, True)
    record.variants += [
        LaneFacts("session", "contiguous", "flash on", "contiguous", 8192, None),
        LaneFacts("session", "contiguous", "flash off", "contiguous", 8192, None),
        LaneFacts("session", "paged", "", "paged", 8192, "Keys are stored as q8_0, values as f16."),
    ]
    for number in range(5):
        noise = 1 + number / 100
        record.raw += [
            RawSample("pp512 @ d0", "contiguous", "flash on", number, 512, 1.6 * noise, 1.61 * noise),
            RawSample("pp512 @ d0", "paged", "", number, 512, 1.6 + number % 2 / 50, 1.62),
            RawSample("tg64 @ d512", "contiguous", "flash off", number, 64, 0.7 * noise, 0.71 * noise),
            RawSample("tg64 @ d512", "paged", "", number, 64, 0.56 * noise, 0.57 * noise),
        ]
    record.raw.append(RawSample("tg64 @ d512", "contiguous", "flash on", 0, 64, 0.8, 0.8))
    for repeat in range(2):
        record.session += [
            _step("turn 1", "contiguous", "flash on", repeat, 2.0, 2.5, 0, 700),
            _step("turn 1", "paged", "", repeat, 2.05, 2.5, 0, 700),
            _step("switch back", "contiguous", "flash on", repeat, 1.5, 2.0 + repeat / 10, 640, 370),
            _step("switch back", "paged", "", repeat, 0.1, 0.5 + repeat / 50, 976, 34),
            _step("four answers", "contiguous", "flash on", repeat, 0.1, 1.6, 1000, 31, answers=4),
            _step("four answers", "paged", "", repeat, 0.1, 0.8, 992, 39, answers=4),
            _step("quit, come back", "contiguous", "flash on", repeat, 2.2, 2.7, 0, 760, survived=False),
            _step("quit, come back", "paged", "", repeat, 2.3, 2.7, 0, 760, survived=False),
        ]
    record.session += [
        _step("turn 1", "contiguous", "flash off", 0, 2.5, 3.1, 0, 700),
        _step("switch back", "contiguous", "flash off", 0, 1.8, 2.5, 640, 370),
        _step("four answers", "contiguous", "flash off", 0, 0.1, 1.9, 1000, 31, answers=4),
        _step("quit, come back", "contiguous", "flash off", 0, 2.7, 3.3, 0, 760, survived=False),
    ]
    record.differences += [
        Difference("turn 1", "paged", "", 5, 39262, 260, 0.0084),
        Difference("switch back", "paged", "", 31, None, 913),
    ]
    record.errors.append(
        LaneError("session", "localhost:8080", "", "", "No server answers at localhost:8080: start it.")
    )
    record.notes.append("The session was played in the \x1b[31mrain.")
    return record


def _step(
    step: str,
    lane: str,
    variant: str,
    repeat: int,
    first_s: float,
    end_s: float,
    reused: int,
    computed: int,
    *,
    answers: int = 1,
    survived: bool | None = None,
) -> StepSample:
    return StepSample(
        step=step,
        lane=lane,
        variant=variant,
        repeat=repeat,
        answers=answers,
        tells_tokens=True,
        generated_tokens=32 * answers,
        user=Times(first_s + 0.01, end_s + 0.02),
        engine=Times(first_s, end_s),
        prefill_s=first_s - 0.005,
        prompt_tokens=reused + computed,
        reused_tokens=reused,
        computed_tokens=computed,
        guessed_tokens=4 if lane == "paged" else 0,
        memory=PAGED_MEMORY if lane == "paged" else CONTIGUOUS_MEMORY,
        cache_survived=survived,
    )
