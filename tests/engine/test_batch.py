"""Which slots a sequence writes and reads, against the definition: position p lies in block p // size of the table."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.batch import FOREIGN, KeyView, Reading, Span, key_view, write_spans
from engine.blocks import BlockTable, Run

SIZE = 4
PADDING = 8


def table_of(blocks: list[int]) -> BlockTable:
    table = BlockTable(SIZE)
    table.extend(blocks)
    return table


def view_of(runs: list[Run], n_positions: int, merge_limit: float = 1.3, max_spans: int = 8) -> KeyView:
    return key_view(runs, SIZE, n_positions, Reading(PADDING, merge_limit, max_spans))


def slots(spans: tuple[Span, ...]) -> list[int]:
    return [slot for span in spans for slot in range(span.first_slot, span.first_slot + span.n_slots)]


tables = st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(blocks=tables, data=st.data(), merge_limit=st.sampled_from([1.0, 1.3]), max_spans=st.integers(1, 8))
def test_every_position_is_read_once_from_its_slot(
    blocks: list[int], data: st.DataObject, merge_limit: float, max_spans: int
) -> None:
    table = table_of(blocks)
    n_positions = data.draw(st.integers(1, len(blocks) * SIZE))
    view = view_of(table.runs(), n_positions, merge_limit, max_spans)
    columns = slots(view.spans)
    assert len(columns) == len(view.positions)
    assert len(columns) % PADDING == 0
    visible = {int(p): slot for p, slot in zip(view.positions, columns, strict=True) if p < n_positions}
    assert visible == dict(enumerate(table.slot_mapping(0, n_positions).tolist()))
    assert np.count_nonzero(view.positions < n_positions) == n_positions
    if view.ordered:
        assert np.array_equal(view.positions, np.arange(len(columns)))
    assert len(view.spans) <= max_spans


@settings(derandomize=True, deadline=None, max_examples=300)
@given(blocks=tables, data=st.data())
def test_writes_are_the_slot_mapping(blocks: list[int], data: st.DataObject) -> None:
    table = table_of(blocks)
    start = data.draw(st.integers(0, len(blocks) * SIZE - 1))
    n_tokens = data.draw(st.integers(1, len(blocks) * SIZE - start))
    spans = write_spans(table.runs(), SIZE, start, n_tokens)
    assert slots(spans) == table.slot_mapping(start, start + n_tokens).tolist()


def test_one_run_is_read_on_into_the_next_positions() -> None:
    view = view_of([Run(3, 2)], 5)
    assert view.spans == (Span(12, 8),)
    assert view.ordered


def test_near_runs_are_read_as_one_masked_stretch() -> None:
    view = view_of([Run(2, 4), Run(0, 1)], 20)
    assert view.spans == (Span(0, 24),)
    assert view.positions[:4].tolist() == [16, 17, 18, 19]
    assert view.positions[4:8].tolist() == [FOREIGN] * 4
    assert view.positions[8:].tolist() == list(range(16))


def test_far_runs_are_read_one_by_one() -> None:
    view = view_of([Run(9, 2), Run(0, 1)], 10)
    assert view.spans == (Span(36, 8), Span(0, 8))
    assert view.ordered


def test_too_many_runs_are_read_across_the_smallest_gaps() -> None:
    view = view_of([Run(20, 1), Run(0, 1), Run(3, 1)], 12, max_spans=2)
    assert view.spans == (Span(0, 16), Span(80, 8))
    assert view.positions[:4].tolist() == [4, 5, 6, 7]
    assert view.positions[12:20].tolist() == [8, 9, 10, 11, 0, 1, 2, 3]
