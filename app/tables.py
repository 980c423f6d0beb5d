"""Tables on standard output, drawn by rich. Text from files and from the hub is made safe here."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.terminal import write_text
from engine.printable import one_line

_UNLIMITED = 10_000
"""Columns of a table that goes to a file or another program: nothing is cut."""


class Column(NamedTuple):
    """A title, and whether the cells are numbers, which are aligned on the right and never cut."""

    title: str
    is_number: bool = False


def write_table(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Rows of as many cells as there are columns; on a terminal they are cut to its width. Raises OctavoError."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for column in columns:
        if column.is_number:
            table.add_column(column.title, justify="right", no_wrap=True)
        else:
            table.add_column(Text(column.title, no_wrap=True, overflow="ellipsis"))
    for row in rows:  # no_wrap of the cells: where no column may wrap, rich narrows all, the numbers to nothing
        table.add_row(*(Text(one_line(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if on_terminal else _UNLIMITED, highlight=False)
    with console.capture() as captured:
        console.print(table)
    write_text("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")
