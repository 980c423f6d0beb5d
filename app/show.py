"""`octavo show`: what a model file says about itself, and how the model fits this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import click

from app.model_page import as_dict, write_page
from app.terminal import tolerate_encoding, write_json, write_text
from engine.errors import ModelFileError
from engine.gguf_file import LongArray
from engine.printable import one_line, quoted
from models.catalogue import Catalogue, InstalledModel
from models.fit import Machine
from models.inspect import ModelSummary, inspect_model
from models.locate import locate

_LONG_TEXT, _LONG_ARRAY = 200, 16
"""Characters and elements up to which a value of the metadata is shown whole."""


@click.command()
@click.argument("model", required=False)
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@click.option("--metadata", is_flag=True, help="Print all keys and values of the file; of long arrays the length.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(model: str | None, template: bool, metadata: bool, as_json: bool) -> int:
    """Describe MODEL: what it is, which engine runs it and why, and what it needs in memory at several contexts.

    MODEL is the name of an installed model or the path of a .gguf file; without it, the starter model is shown.
    """
    tolerate_encoding()
    if template + metadata > 1 or (template and as_json):
        raise click.UsageError("Give one of --template, --metadata and --json, or --metadata with --json.")
    path = locate(model)
    installed = _installed(path)
    summary = inspect_model(installed.files if installed else (path,))
    if template:
        if summary.chat_template is None:
            raise ModelFileError(f"{quoted(path.name)} has no chat template: it completes texts rather than chats.")
        write_text(summary.chat_template.rstrip("\n") + "\n")
    elif as_json:
        values = as_dict(summary, installed, Machine.now())
        write_json(values | ({"metadata": _plain_metadata(summary)} if metadata else {}))
    elif metadata:
        write_text("".join(f"{line}\n" for line in _metadata_lines(summary)))
    else:
        write_page(summary, installed, Machine.now())
    return 0


def _installed(path: Path) -> InstalledModel | None:
    """The installed model of which `path` is the first file."""
    absolute = os.path.abspath(path)
    return next((model for model in Catalogue().models() if str(model.path) == absolute), None)


def _metadata_lines(summary: ModelSummary) -> Iterable[str]:
    width = max(map(len, summary.metadata), default=0)
    for key, value in summary.metadata.items():
        yield f"{one_line(key):{width}}  {_shown(value)}"


def _shown(value: object) -> str:
    match value:
        case LongArray(n):
            return f"[{n:,} values]"
        case tuple() if len(value) > _LONG_ARRAY:
            return f"[{len(value):,} values]"
        case str() if len(value) > _LONG_TEXT:
            return f"{one_line(value[:_LONG_TEXT])}… ({len(value):,} characters)"
        case str():
            return one_line(value)
        case tuple():
            return f"[{', '.join(_shown(item) for item in value)}]"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def _plain_metadata(summary: ModelSummary) -> dict[str, object]:
    """Values as JSON knows them: a long array is an object with its length, a float that is no number a text."""
    return {key: _plain(value) for key, value in summary.metadata.items()}


def _plain(value: object) -> object:
    match value:
        case LongArray(n):
            return {"length": n}
        case tuple():
            return [_plain(item) for item in value]
        case float() if json.dumps(value) in ("NaN", "Infinity", "-Infinity"):
            return str(value)
        case _:
            return value
