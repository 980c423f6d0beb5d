"""`octavo rm`: installed models removed, after a question that says what becomes of their files."""

from __future__ import annotations

import click

from app.questions import can_ask, confirm
from app.terminal import StatusLine, tolerate_encoding, write_text
from engine.printable import one_line, quoted
from engine.units import format_bytes
from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import CatalogueError
from models.locate import find_installed
from models.removal import Removal, plan_removal, remove


@click.command("rm")
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove_models(models: tuple[str, ...], yes: bool) -> int:
    """Remove installed models.

    Files that were downloaded, copied or quantized are deleted, and those in the folder of models. Files that were
    imported where they are stay there.
    """
    tolerate_encoding()
    removals = _planned(models)
    if not yes and not _is_wanted(removals):
        StatusLine().note("Nothing is removed.")
        return 1
    catalogue = Catalogue()
    for removal in removals:
        remove(removal, catalogue)
        freed = f", {format_bytes(removal.freed)} freed" if removal.freed else ""
        write_text(f"{one_line(removal.model.name)} is removed{freed}.\n")
    return 0


def _planned(names: tuple[str, ...]) -> list[Removal]:
    """Nothing is removed unless all of them can be found. Raises CatalogueError."""
    found = {model.name: model for model in map(_find, names)}
    others = [model for model in Catalogue().models() if model.name not in found]
    return [plan_removal(model, others) for model in found.values()]


def _find(name: str) -> InstalledModel:
    model = find_installed(name)
    if model is None:
        raise CatalogueError(f"No model {quoted(name)} is installed: 'octavo list' shows the names.")
    return model


def _is_wanted(removals: list[Removal]) -> bool:
    """Ask. Raises click.UsageError where nobody can answer."""
    if not can_ask():
        raise click.UsageError("Nobody can be asked here: give --yes to remove without a question.")
    for removal in removals:
        write_text("".join(f"{line}\n" for line in _consequences(removal)))
    return confirm("Remove it?" if len(removals) == 1 else f"Remove these {len(removals)} models?")


def _consequences(removal: Removal) -> list[str]:
    """A line on the model, and one on every file."""
    model = removal.model
    deleted = [f"  deletes {one_line(str(file))}" for file in removal.deleted]
    whose = "is yours and stays" if model.origin is Origin.LINKED else "belongs to another installed model and stays"
    kept = [f"  {one_line(str(file))} {whose}" for file in removal.kept]
    freed = f"frees {format_bytes(removal.freed)}" if removal.freed else "frees no disk space"
    return [f"{one_line(model.name)} ({model.origin}: {one_line(model.source)}): {freed}", *deleted, *kept]
