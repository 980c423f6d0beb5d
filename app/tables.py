"""Tables on standard output, drawn by rich. Text from files and from the hub is made safe here."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.terminal import write_text
from engine.printable import one_line

_GAP = 2
_SHORTEST_TEXT = 12
_LONGEST_KEY = 80
"""Cells to which they may be cut."""


class Column(NamedTuple):
    """A title, and what becomes of the cells where a terminal is too narrow for all of the table.

    is_number: aligned on the right and never cut. is_key: not cut but for absurd lengths, as the user has to type what
    it says, or to tell rows apart by it. is_spare: left out, one after the other from the left.
    """

    title: str
    is_number: bool = False
    is_key: bool = False
    is_spare: bool = False


def write_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Rows of as many cells as there are columns; nothing is left out or cut where standard output is no terminal.

    On a terminal that is narrower than what is not cut, lines are longer than it is wide.
    Raises OctavoError.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [
        max(map(cell_len, (column.title, *(row[index] for row in cells)))) for index, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    room = _total(widths)
    if sys.stdout is not None and sys.stdout.isatty():
        room = shutil.get_terminal_size().columns
        shown = _fitting(columns, widths, room)
    least = [_least(columns[index], widths[index]) for index in shown]
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="")
    for index, width in zip(shown, least, strict=True):
        title, is_number, *_ = columns[index]
        is_fixed = width == widths[index]  # rich narrows the widest of the others
        table.add_column(_cell(title), justify="right" if is_number else "left", no_wrap=is_fixed, min_width=width)
    for row in cells:
        table.add_row(*(_cell(row[index]) for index in shown))
    drawn = io.StringIO()
    width = max(room, _total(least)) + _GAP  # behind the last column, and stripped
    Console(file=drawn, width=width, highlight=False).print(table)
    write_text("".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines()))


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Indices of the columns that are shown in `room` cells."""
    least = [_least(column, width) for column, width in zip(columns, widths, strict=True)]
    shown = list(range(len(columns)))
    spare = [index for index in shown if columns[index].is_spare]
    while spare and _total([least[index] for index in shown]) > room:
        shown.remove(spare.pop(0))
    return shown


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _least(column: Column, width: int) -> int:
    """To how much a column may be narrowed."""
    if column.is_number:
        return width
    return min(width, _LONGEST_KEY if column.is_key else _SHORTEST_TEXT)


def _cell(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")
