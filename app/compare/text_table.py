"""Tables of a report, as plain text and as Markdown. Texts from files are made safe by whoever fills the cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

_GAP = "  "


class Heading(NamedTuple):
    """Of a column; numbers are aligned on the right."""

    title: str
    is_number: bool = True


class Table(NamedTuple):
    """Rows of as many cells as there are headings."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]


def plain_lines(table: Table) -> list[str]:
    """The title and the aligned rows; where a row begins as the one above, that is left out."""
    cells = [[heading.title for heading in table.headings], *_without_repeats(table)]
    widths = [max(cell_len(row[i]) for row in cells) for i in range(len(table.headings))]
    lines = [
        _GAP.join(
            _aligned(cell, width, heading) for cell, width, heading in zip(row, widths, table.headings, strict=True)
        )
        for row in cells
    ]
    return [table.title, *(f"{_GAP}{line}".rstrip() for line in lines)]


def markdown_lines(table: Table) -> list[str]:
    """The title in bold, and a table as GitHub and others draw it."""
    rule = ["---:" if heading.is_number else "---" for heading in table.headings]
    rows = [[heading.title for heading in table.headings], rule, *_without_repeats(table)]
    return [f"**{table.title}**", "", *(f"| {' | '.join(_escaped(row))} |" for row in rows)]


def _without_repeats(table: Table) -> list[list[str]]:
    above = ""
    rows = []
    for first, *others in table.rows:
        rows.append(["" if first == above else first, *others])
        above = first
    return rows


def _aligned(cell: str, width: int, heading: Heading) -> str:
    padding = " " * (width - cell_len(cell))
    return padding + cell if heading.is_number else cell + padding


def _escaped(row: Sequence[str]) -> list[str]:
    return [cell.replace("|", "\\|") for cell in row]
