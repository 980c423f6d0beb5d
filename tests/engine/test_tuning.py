"""The rules that choose settings from times, on made-up times."""

from __future__ import annotations

import pytest

from engine.attention_choice import NEVER, AttentionChoice
from engine.tuning import AttentionTimes, ChunkTimes, DecodeTimes, Speed, choose_attention, smallest_nearly_best

SIZES = (128, 256, 512, 1024, 2048)
FLASH_IS_FASTER = (ChunkTimes(256, 0, 1.0, 1.1), ChunkTimes(256, 1024, 6.0, 8.0))


def choice(
    unpacked: list[float], packed: list[float], ahead: list[float], chunks: tuple[ChunkTimes, ...] = FLASH_IS_FASTER
) -> AttentionChoice:
    rows = map(DecodeTimes, SIZES, unpacked, packed, ahead)
    return choose_attention(AttentionTimes(tuple(rows), chunks))


def test_three_compositions_one_after_the_other() -> None:
    assert choice([2, 3, 5, 9, 17], [3, 4, 4, 6, 12], [4, 5, 6, 5, 8]) == AttentionChoice(256, 1024, flash=True)


def test_packed_for_all() -> None:
    assert choice([2, 3, 5, 9, 17], [1, 2, 4, 6, 12], [4, 5, 6, 8, 13]) == AttentionChoice(0, NEVER, flash=True)


def test_unpacked_for_all_that_was_measured() -> None:
    assert choice([1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [2, 3, 4, 5, 6]) == AttentionChoice(2048, NEVER, flash=True)


def test_reading_ahead_for_all() -> None:
    assert choice([3, 4, 5, 6, 7], [3, 4, 5, 6, 7], [2, 3, 4, 5, 6]) == AttentionChoice(0, 128, flash=True)


def test_a_win_beyond_a_defeat_does_not_count_for_unpacked() -> None:
    assert choice([2, 5, 3, 9, 17], [3, 4, 4, 6, 12], [4, 5, 6, 7, 13]).unpacked_columns == 128


def test_a_win_before_a_defeat_does_not_count_for_reading_ahead() -> None:
    assert choice([9] * 5, [3, 4, 5, 6, 7], [2, 3, 6, 5, 6]).ahead_columns == 1024


def test_reading_ahead_that_wins_by_nothing_is_left_out() -> None:
    packed = [100.0, 200, 300, 400, 500]
    assert choice([900] * 5, packed, [time * 0.99 for time in packed]).ahead_columns == NEVER
    assert choice([900] * 5, packed, [time * 0.97 for time in packed]).ahead_columns == 128


def test_unpacked_must_beat_reading_ahead_too() -> None:
    assert choice([3, 4, 5, 6, 7], [4, 5, 6, 7, 8], [4, 3, 4, 5, 6]) == AttentionChoice(128, 256, flash=True)


@pytest.mark.parametrize(("flash_s", "flash"), [(7.9, True), (8.1, False)])
def test_chunks_by_the_sum_of_their_times(flash_s: float, flash: bool) -> None:
    chunks = (ChunkTimes(256, 0, 1.0, 1.0), ChunkTimes(256, 1024, flash_s, 8.0))
    assert choice([1] * 5, [1] * 5, [1] * 5, chunks).flash is flash


def test_fewer_threads_and_smaller_chunks_when_nearly_as_fast() -> None:
    assert smallest_nearly_best([Speed(4, 100.0), Speed(3, 98.0), Speed(8, 99.0)]) == 3
    assert smallest_nearly_best([Speed(4, 100.0), Speed(3, 96.0), Speed(8, 99.0)]) == 4
    assert smallest_nearly_best([Speed(4, 90.0), Speed(3, 80.0), Speed(8, 99.0)]) == 8
    assert smallest_nearly_best([Speed(2, 1.0)]) == 2
