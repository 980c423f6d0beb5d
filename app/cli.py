"""The command line: `octavo` and its commands."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import click

from app.batch import Batch
from app.lazy_group import LazyGroup
from app.options import ENGINE_OPTIONS, REQUEST_OPTIONS, RequestOptions, engine_config
from app.run import run_prompt
from app.terminal import StatusLine, discard_unwritten, open_standard_files, report, tolerate_encoding
from app.tune import tune_model
from engine.client import EngineClient
from engine.config import EngineKind
from engine.errors import OctavoError, PromptError
from engine.units import format_bytes
from models.catalogue import Catalogue
from models.errors import CatalogueError, NoSuchModel
from models.locate import locate

_LONGEST_PROMPT = 64 * 2**20
"""Bytes read from standard input: more than any context holds, and an end to a pipe that has none."""


@click.group(
    cls=LazyGroup,
    lazy={
        "chat": "app.chat_command:chat",
        "compare": "app.compare_command:compare",
        "import": "app.importing:import_models",
        "list": "app.listing:list_models",
        "pull": "app.pull:pull",
        "quantize": "app.quantize:quantize",
        "rm": "app.remove:remove_models",
        "search": "app.search:search",
        "show": "app.show:show",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(package_name="octavo")
@click.pass_context
def octavo(context: click.Context) -> int | None:
    """Run language models on your own machine, from a paged KV cache.

    Without a command it opens the chat app.
    """
    if context.invoked_subcommand is not None:
        return None
    chat = octavo.get_command(context, "chat")
    assert chat is not None
    code: int = context.invoke(chat)
    return code


@octavo.command(params=[*REQUEST_OPTIONS, *ENGINE_OPTIONS])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the answer and its figures.")
@click.option(
    "--batch",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Answer every line of FILE (- is standard input): a JSON object with prompt or messages, and perhaps id, "
    "temperature and so on, up to n.",
)
@click.argument("arguments", nargs=-1, metavar="[MODEL] PROMPT")
def run(arguments: tuple[str, ...], as_json: bool, batch: str | None, **options: Any) -> int:
    """Answer PROMPT, or standard input when it is -.

    MODEL is the path of a .gguf file or the name of an installed model; without it, the starter model answers.
    """
    tolerate_encoding()
    config = engine_config(**{str(option.name): options.pop(str(option.name)) for option in ENGINE_OPTIONS})
    chosen = RequestOptions(**options)
    model, prompt = _model_and_prompt(arguments, wants_prompt=batch is None)
    path = _located(model)
    request = None if prompt is None else chosen.ask(_standard_input() if prompt == "-" else prompt)

    status = StatusLine()

    def on_loading(fraction: float) -> None:
        status.show(f"Loading {path.name}: {fraction:.0%}")

    with EngineClient(path, config, on_loading) as client:
        try:
            loaded = client.load()
        finally:
            status.clear()
        with contextlib.suppress(CatalogueError):  # a folder that cannot be written to does not stop an answer
            Catalogue().note_use(path)
        if loaded.notice:
            status.note(loaded.notice)
        if request is not None:
            return run_prompt(client, request, loaded, str(path), status, as_json=as_json)
        assert batch is not None
        return Batch(client, options, loaded, str(path), status).run(batch)


@octavo.command(params=[option for option in ENGINE_OPTIONS if option.name in ("threads", "kv_type")])
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.argument("model", required=False)
def tune(model: str | None, threads: int | None, kv_type: str, as_json: bool) -> int:
    """Measure anew what is fastest on this machine's CPU, and print the times.

    Octavo measures briefly when it runs a model like MODEL for the first time, and remembers what it chose. This takes
    more time for it. Other programs disturb the measurement. Without MODEL it is for the starter model.
    """
    tolerate_encoding()
    config = engine_config(EngineKind.PAGED, None, threads, "CPU", kv_type)
    return tune_model(locate(model), config, as_json=as_json)


def main() -> None:
    """Entry point. Exit code: 0 answered, 1 error, 2 wrong command line, 128 + number of the signal that ended it."""
    open_standard_files()
    try:
        code = octavo.main(prog_name="octavo", standalone_mode=False)
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        code = error.exit_code
    except OctavoError as error:
        report(error)
        code = 1
    except OSError as error:  # out of descriptors, no space for the help text …
        report(OctavoError(f"The system refused a request: {error.strerror or error}."))
        code = 1
    except click.Abort:
        code = 130
    discard_unwritten()
    sys.exit(code)


def _model_and_prompt(arguments: tuple[str, ...], wants_prompt: bool) -> tuple[str | None, str | None]:
    if not wants_prompt:
        if len(arguments) > 1:
            raise click.UsageError("With --batch the prompts come from the file: give at most a MODEL.")
        return (arguments[0] if arguments else None), None
    match arguments:
        case (prompt,):
            if prompt.endswith(".gguf") and os.path.isfile(prompt):
                raise click.UsageError(f"{prompt} is a model: give a PROMPT after it.")
            return None, prompt
        case (model, prompt):
            return model, prompt
        case ():
            raise click.UsageError("Give a PROMPT, or - to read it from standard input.")
        case _:
            raise click.UsageError("Give one PROMPT, in quotes if it has several words, and at most a MODEL before it.")


def _located(model: str | None) -> Path:
    try:
        return locate(model)
    except NoSuchModel as error:
        text = str(error).removesuffix(".")
        raise NoSuchModel(f"{text}; a prompt of several words goes in quotes.") from None


def _standard_input() -> str:
    """All of standard input, without the line end that closes it."""
    content = b"" if sys.stdin is None else sys.stdin.buffer.read(_LONGEST_PROMPT + 1)
    if len(content) > _LONGEST_PROMPT:
        raise PromptError(f"Standard input is longer than {format_bytes(_LONGEST_PROMPT)}: give a shorter prompt.")
    try:
        return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise PromptError(f"Standard input is not UTF-8 text (byte {error.start + 1:,}): convert it first.") from None
