"""What was measured so far, as a table; at the end also what it comes to, and all tables of the report."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import ScrollableContainer
from textual.content import Content
from textual.widgets import Static

from app.compare.report_tables import lane_name, ratio_text, tables
from app.compare.screen.lane_pane import LANE_COLOURS, failure_text
from app.compare.screen.snapshot import Snapshot
from app.compare.statistics import Verdict
from app.compare.summary import Summary, SummaryRow, summary_of
from app.compare.text_table import plain_lines
from engine.printable import one_line

_NAME, _GAP = 22, "  "
_STYLES = {
    Verdict.FASTER: "bold $success",
    Verdict.SLOWER: "bold $error",
    Verdict.NO_DIFFERENCE: "",
    Verdict.UNKNOWN: "",
}


class FiguresView(ScrollableContainer):
    """lanes: in the order of columns. tests: which will be measured."""

    def __init__(self, lanes: Sequence[str], tests: Sequence[str]) -> None:
        super().__init__(id="figures")
        self._lanes, self._tests = lanes, tests
        self._conclusion, self._summary, self._failures, self._all_tables = (
            Static(id=name, markup=False) for name in ("conclusion", "summary", "failures", "tables")
        )

    def compose(self) -> ComposeResult:
        """From what matters most to all the rest."""
        yield from (self._conclusion, self._summary, self._failures, self._all_tables)

    def show(self, snapshot: Snapshot, test: str = "") -> None:
        """test: which is being measured."""
        summary = summary_of(snapshot.results, self._lanes, self._tests)
        self._summary.update(summary_text(summary, test))
        lines = [f"{lane_name(error.lane, '')}: {failure_text(error)}" for error in snapshot.errors]
        self._failures.update(Content("\n".join(lines)))

    def conclude(self, snapshot: Snapshot) -> None:
        """Everything is measured that will be."""
        self._tests = ()
        self.show(snapshot)
        self._conclusion.update(Content(snapshot.conclusion))
        self._conclusion.add_class("-shown")
        parts = []
        for table in tables(snapshot.results):
            title, headings, *rows = plain_lines(table)
            parts.append(Content.styled(title, "bold $primary"))
            parts += [Content.styled(headings, "$foreground-muted"), *map(Content, rows), Content("")]
        self._all_tables.update(Content("\n").join(parts))
        self.scroll_home(animate=False)


def summary_text(summary: Summary, test: str = "") -> Content:
    """A line for each figure. test: the row that is marked."""
    rows = [*summary.session, *summary.raw]
    widths = [
        max(cell_len(one_line(lane)), *(cell_len(row.texts[i]) for row in rows), 1)
        for i, lane in enumerate(summary.lanes)
    ]
    ratio_widths = [
        max((max(len(ratio_text(row.ratios[i])), len("ratio")) for row in rows if row.ratios[i]), default=0)
        for i in range(len(summary.lanes))
    ]
    heading = [Content(" " * _NAME)]
    for number, (lane, width, ratio_width) in enumerate(zip(summary.lanes, widths, ratio_widths, strict=True)):
        name = one_line(lane)
        colour = LANE_COLOURS[number % len(LANE_COLOURS)]
        heading.append(Content.styled(" " * (width - cell_len(name)) + name, f"bold {colour}"))
        if ratio_width:
            heading.append(Content.styled("ratio".ljust(ratio_width), "$foreground-muted"))
    lines = [Content(_GAP).join(heading)]
    for title, group in (("A user's session", summary.session), ("Raw speed, tokens/s", summary.raw)):
        if group:
            lines.append(Content.styled(title, "bold $primary"))
            lines += [_line(row, widths, ratio_widths, is_now=row.name == test) for row in group]
            lines.append(Content(""))
    return Content("\n").join(lines)


def _line(row: SummaryRow, widths: Sequence[int], ratio_widths: Sequence[int], *, is_now: bool) -> Content:
    name = f"{'▶' if is_now else ' '} {row.name}"
    parts = [Content.styled(name.ljust(_NAME), "bold $accent" if is_now else "$foreground-muted")]
    for text, ratio, width, ratio_width in zip(row.texts, row.ratios, widths, ratio_widths, strict=True):
        parts.append(Content(" " * (width - cell_len(text)) + text))
        if ratio_width:
            compared = "" if ratio is None else ratio_text(ratio)
            parts.append(Content.styled(compared.ljust(ratio_width), _STYLES[ratio.verdict] if ratio else ""))
    return Content(_GAP).join(parts)
