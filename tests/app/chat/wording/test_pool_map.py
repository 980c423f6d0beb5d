"""The map of the KV pool: no block is counted twice, none in use goes unseen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from app.chat.widgets.pool_panel import pool_text
from app.chat.wording.pool_map import BlockKind, blocks_per_cell, cells_of, kinds_of
from engine.scheduler_stats import SchedulerStats
from engine.survey import NOBODY, SEVERAL, BlockState, PoolSurvey, SurveyedSequence
from tests.app.chat.scripted_engine import KV

BLOCKS = st.lists(st.tuples(st.sampled_from(BlockState), st.sampled_from([NOBODY, SEVERAL, 1, 2, 3])), max_size=300)


def survey_of(blocks: list[tuple[BlockState, int]], **more: object) -> PoolSurvey:
    states, owners = bytes(state for state, _ in blocks), tuple(owner for _, owner in blocks)
    return PoolSurvey(KV, None, states, owners)._replace(**more)


def test_whose_a_block_is() -> None:
    blocks = [
        (BlockState.USED, 1),
        (BlockState.USED, 2),
        (BlockState.USED, SEVERAL),
        (BlockState.CACHED, SEVERAL),
        (BlockState.CACHED, 1),
        (BlockState.CACHED, 2),
        (BlockState.CACHED, NOBODY),
        (BlockState.FREE, NOBODY),
    ]
    expected = "OURS OTHERS SHARED SHARED CACHED_OURS CACHED_OTHERS CACHED_OTHERS FREE"
    assert [kind.name for kind in kinds_of(survey_of(blocks), 1)] == expected.split()


def test_kinds_can_be_told_apart_without_colour() -> None:
    assert len({kind.value for kind in BlockKind}) == len(BlockKind)
    assert {len(kind.value) for kind in BlockKind} == {1}


@given(BLOCKS, st.integers(1, 400))
def test_all_cells_fit_and_no_use_is_hidden(blocks: list[tuple[BlockState, int]], n_cells: int) -> None:
    kinds = kinds_of(survey_of(blocks), 1)
    per_cell = blocks_per_cell(len(kinds), n_cells)
    cells = cells_of(kinds, per_cell)
    assert len(cells) <= n_cells
    assert per_cell == 1 or (per_cell - 1) * n_cells < len(kinds), "no coarser than it has to be"
    for index, cell in enumerate(cells):
        behind = kinds[index * per_cell : (index + 1) * per_cell]
        assert (cell is BlockKind.FREE) == (set(behind) == {BlockKind.FREE})
        assert cell in behind


@given(BLOCKS.filter(bool), st.integers(16, 60), st.integers(4, 20))
def test_the_panel_counts_what_the_map_shows(blocks: list[tuple[BlockState, int]], width: int, rows: int) -> None:
    text = pool_text(survey_of(blocks), 1, {}, width, rows).plain
    counts = Counter(kinds_of(survey_of(blocks), 1))
    for kind in BlockKind:
        assert f"{kind.value} {counts[kind]:>6,} " in text
    first, *lines = text.splitlines()[1:]
    assert first.startswith(f"{len(blocks):,} blocks of 16 tokens")
    drawn = lines[: lines.index("")]
    assert len(drawn) <= rows
    assert all(len(line) <= width for line in drawn)


def test_the_panel_tells_what_sharing_is_worth() -> None:
    stats = SchedulerStats(1, 0, 64, 3, 10, 300, 100, 0, 7, 5, 40, 30)
    sequences = (SurveyedSequence(1, 40, 3, 1), SurveyedSequence(2, 2000, 125, 4), SurveyedSequence(9, 1, 1, 1))
    blocks = [(BlockState.USED, 1)] * 4
    text = pool_text(survey_of(blocks, stats=stats, sequences=sequences), 1, {2: "Oc\x1btopus"}, 40, 4).plain
    for line in (
        *("hit rate           75%", "reused / computed  300 / 100", "evictions          7", "preemptions        5"),
        *("drafts accepted    30 of 40", "held in memory     20.0 KiB", "contiguous cache   128.0 KiB"),
        *("this chat", "  40 tokens, 3 blocks in 1 run"),
        *("Oc␛topus", "  2,000 tokens, 125 blocks in 4 runs", "another chat"),
    ):
        assert line in text.splitlines()


def test_the_contiguous_engine_says_what_it_is() -> None:
    text = pool_text(PoolSurvey(KV), 1, {}, 40, 4).plain
    assert "contiguous engine" in text
    assert "hit rate" not in text
    assert not set(text) & {kind.value for kind in BlockKind}
