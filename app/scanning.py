"""`octavo import --scan`: list the models that other programs hold, and import those that the user picks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from app.questions import ask, can_ask
from app.tables import Column, write_table
from app.terminal import StatusLine, write_json
from engine.printable import one_line
from engine.units import format_bytes
from models.catalogue import Catalogue
from models.elsewhere.other_programs import all_holdings
from models.elsewhere.scan import Findings, FoundModel, scan
from models.importing import Candidate, installed_model

_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


def import_found(
    catalogue: Catalogue, import_all: Callable[[Sequence[Candidate]], int], *, yes: bool, as_json: bool
) -> int:
    """Find and list; then, on a terminal, ask which to import. Returns the exit code.

    import_all: imports, tells of each, and returns the exit code. yes: import all that are new. as_json: do not ask.
    """
    status = StatusLine()
    status.show("Looking for models of other programs")
    try:
        unreadable: list[Path] = []
        findings = scan(all_holdings(unreadable), unreadable, catalogue)
    finally:
        status.clear()
    new = [found.candidate for found in findings.models if not found.installed]
    if as_json:
        code = import_all(new) if yes else 0
        write_json(as_dict(findings, catalogue))
        return code
    _list(findings, status)
    if yes:
        return import_all(new)
    if not new:
        return 0
    if not can_ask():
        status.note("Nothing is imported without a question: give --yes to import what is not installed.")
        return 0
    return import_all(_ask(findings))


def as_dict(findings: Findings, catalogue: Catalogue) -> dict[str, Any]:
    """The object that `--json` prints; "installed" is the name here, or null."""
    installed = catalogue.models()
    models = []
    for found in findings.models:
        files = found.candidate.files
        entry = installed_model(files, installed)
        models.append(
            {
                "programs": list(found.programs),
                "names": list(found.labels),
                "bytes": found.n_bytes,
                "files": [str(file) for file in files],
                "installed": entry.name if entry else None,
            }
        )
    return {"models": models, "unreadable": [str(path) for path in findings.unreadable]}


def _list(findings: Findings, status: StatusLine) -> None:
    if findings.models:
        columns = (
            Column("", is_number=True),
            Column("program"),
            Column("name", is_key=True),
            Column("size", is_number=True),
            Column("installed as"),
            Column("path", is_spare=True),
        )
        rows = [
            (
                str(number),
                *_cells(found),
                found.installed.name if found.installed else "",
                str(found.candidate.files[0]),
            )
            for number, found in enumerate(findings.models, start=1)
        ]
        write_table(columns, rows)
    else:
        status.note("No models of other programs were found.")
    if findings.unreadable:
        first = one_line(str(findings.unreadable[0]))
        others = len(findings.unreadable) - 1
        status.note(f"{others + 1} could not be read: '{first}'" + (f" and {others} more." if others else "."))


def _cells(found: FoundModel) -> tuple[str, str, str]:
    return ", ".join(found.programs), ", ".join(found.labels), format_bytes(found.n_bytes)


def _ask(findings: Findings) -> list[Candidate]:
    """Ask until the answer is understood. Raises click.Abort."""

    def picked(answer: str) -> list[Candidate]:
        numbers = picked_numbers(answer, len(findings.models))
        return [findings.models[number - 1].candidate for number in numbers]

    return ask("Import which? Numbers such as 1 3-5, or all; Enter takes none", picked)


def picked_numbers(answer: str, count: int) -> list[int]:
    """Numbers from 1 to `count` that an answer such as "1, 3-5" means, each once. Raises click.UsageError."""
    words = answer.replace(",", " ").lower().split()
    if words == ["all"]:
        return list(range(1, count + 1))
    picked: dict[int, None] = {}
    for word in words:
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= count:
            raise click.UsageError(f"Give numbers from 1 to {count}, or all.")
        picked |= dict.fromkeys(range(first, last + 1))
    return list(picked)
