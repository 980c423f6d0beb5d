"""`octavo import`: install models that the user has as files, or that other programs hold."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from app.progress import byte_progress, label
from app.scanning import import_found
from app.terminal import Interrupted, interrupts_to, report, tolerate_encoding, write_text
from engine.errors import OctavoError
from engine.printable import one_line
from engine.units import format_bytes
from models.catalogue import Catalogue, Origin
from models.importing import Candidate, Outcome, candidate_of, install
from models.names import safe_name
from models.shards import shards_of


def _checked_name(_context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is None:
        return None
    name = name[: -len(".gguf")] if name.lower().endswith(".gguf") else name
    if name != safe_name(name):
        raise click.BadParameter(f"use letters, digits and . _ + -, such as '{safe_name(name)}'.")
    return name


@click.command("import")
@click.argument("files", nargs=-1, metavar="FILE…")
@click.option("--name", callback=_checked_name, help="What to call the model; without it, what its file is called.")
@click.option("--copy", "is_copy", is_flag=True, help="Copy the model, instead of using it where it is.")
@click.option("--scan", "is_scan", is_flag=True, help="Find models of Ollama, LM Studio and other programs.")
@click.option("--yes", is_flag=True, help="With --scan: import all that are found, without asking.")
@click.option("--json", "as_json", is_flag=True, help="With --scan: print one JSON object, without asking.")
def import_models(
    files: Sequence[str], name: str | None, is_copy: bool, is_scan: bool, yes: bool, as_json: bool
) -> int:
    """Install models that you have as GGUF files.

    They are used where they are, so do not move or remove them. Of a model split into several FILEs, one is enough.
    """
    tolerate_encoding()
    if is_scan == bool(files):
        raise click.UsageError("Give the FILEs to import, or --scan to find some.")
    if not is_scan and (yes or as_json):
        raise click.UsageError("--yes and --json go with --scan.")
    given = (Path(os.path.abspath(os.path.expanduser(file))) for file in files)
    paths = {shards_of(path)[0]: path for path in given}  # all shards of a model are one model
    if name and len(paths) != 1:
        raise click.UsageError("--name goes with one model.")
    catalogue = Catalogue()
    if is_scan:
        import_all = functools.partial(_import, catalogue, None, is_copy, quiet=as_json)
        return import_found(catalogue, import_all, yes=yes, as_json=as_json)
    return _import(catalogue, name, is_copy, paths.values())


def _import(
    catalogue: Catalogue, name: str | None, is_copy: bool, models: Iterable[Path | Candidate], *, quiet: bool = False
) -> int:
    """Import one after the other, and tell each; returns the exit code. A failure does not stop it, and is told."""
    code = 0
    for model in models:
        try:
            candidate = model if isinstance(model, Candidate) else candidate_of(model)
            outcome = _copy(catalogue, name, candidate) if is_copy else install(candidate, catalogue, name)
        except _Stopped as stopped:
            return stopped.interrupted.exit_code
        except OctavoError as error:
            report(error)
            code = 1
        else:
            if not quiet:
                write_text(_sentence(candidate, outcome) + "\n")
    return code


class _Stopped(Exception):
    """The user has stopped a copy."""

    def __init__(self, interrupted: Interrupted) -> None:
        super().__init__(interrupted)
        self.interrupted = interrupted


def _copy(catalogue: Catalogue, name: str | None, candidate: Candidate) -> Outcome:
    """Install a copy, with a progress bar. Raises _Stopped and what `install` raises."""
    interruptions: list[Interrupted] = []
    with byte_progress() as bars, interrupts_to(interruptions.append):
        bar = bars.add_task(label(f"Copying {candidate.name}"), visible=False)

        def on_progress(done: int, total: int) -> None:
            if interruptions:
                raise _Stopped(interruptions[0])
            bars.update(bar, completed=done, total=total, visible=True)

        return install(candidate, catalogue, name, on_progress)


def _sentence(candidate: Candidate, outcome: Outcome) -> str:
    model = outcome.model
    name = one_line(model.name)
    if outcome.was_there:
        return f"'{one_line(str(candidate.files[0]))}' is already installed as {name}."
    how = "copied to" if model.origin is Origin.COPIED else "linked to"
    return f"{name} is installed ({format_bytes(model.n_bytes)}), {how} '{one_line(str(model.path))}'."
