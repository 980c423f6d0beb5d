"""`octavo quantize`: make a model smaller, and say beforehand and afterwards what that costs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click

from app.progress import byte_progress, label, step_progress
from app.quantize_report import (
    describe_plan,
    describe_quality,
    describe_result,
    plan_as_dict,
    result_as_dict,
    write_types,
)
from app.quantize_source import Source, find_source
from app.terminal import Interrupted, StatusLine, interrupts_to, tolerate_encoding, write_json, write_text
from engine.printable import one_line
from engine.threads import usable_cores
from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import QuantizeError
from models.folders import models_folder
from models.names import safe_name
from models.part_file import PartFile
from models.quality import Quality
from models.quantize import (
    check_output,
    check_plan,
    check_settings,
    keep_converted,
    make_plan,
    measure_quality,
    write_file,
)
from models.quantize_plan import Plan, Settings, Step
from models.quantize_types import TENSOR_TYPES, find_type

_TENSOR_TYPE = click.Choice(TENSOR_TYPES, case_sensitive=False)


@click.command()
@click.argument("source", required=False, metavar="SRC")
@click.argument("type_name", required=False, metavar="TYPE")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Write the file here.")
@click.option("--types", "show_types", is_flag=True, help="List the types, what they take and how good they are.")
@click.option("--dry-run", is_flag=True, help="Say what would come out of it, and stop.")
@click.option("--strict", is_flag=True, help="Refuse if tensors would fall back to another type.")
@click.option("--allow-requantize", is_flag=True, help="Quantize tensors that are quantized already.")
@click.option("--pure", is_flag=True, help="All tensors in one type, where TYPE mixes several.")
@click.option("--output-type", type=_TENSOR_TYPE, metavar="GGML_TYPE", help="Type of the output matrix.")
@click.option("--embedding-type", type=_TENSOR_TYPE, metavar="GGML_TYPE", help="Type of the token embeddings.")
@click.option(
    "--imatrix",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Importance matrix of the model, from llama-imatrix.",
)
@click.option("--threads", type=click.IntRange(1, 1024), help="CPU threads; without it, one for each core.")
@click.option("--check", is_flag=True, help="Compare the predictions of both models on a short text afterwards.")
@click.option("--yes", is_flag=True, help="Replace an earlier output without asking.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def quantize(
    source: str | None,
    type_name: str | None,
    show_types: bool,
    threads: int | None,
    pure: bool,
    output_type: str | None,
    embedding_type: str | None,
    imatrix: Path | None,
    **choices: Any,
) -> int:
    """Quantize the model SRC to TYPE, such as Q4_K_M.

    SRC is an installed model, a .gguf file, the folder of a Hugging Face checkpoint, or USER/REPO[:QUANT] on the hub; a
    checkpoint is converted to GGUF first. The result is installed as NAME-TYPE. Start from F16, BF16 or F32: what a
    quantized source has lost stays lost.
    """
    tolerate_encoding()
    if show_types:
        write_types(as_json=choices["as_json"])
        return 0
    if source is None or type_name is None:
        raise click.UsageError("Give SRC and TYPE; 'octavo quantize --types' lists the types.")
    settings = Settings(find_type(type_name), threads or usable_cores(), pure, output_type, embedding_type, imatrix)
    check_settings(settings)
    with interrupts_to(_stop):
        return _Command(settings, source, **choices).run()


def _stop(interrupted: Interrupted) -> NoReturn:
    """An exception, as nothing else ends the wait for native code; every block on the way cleans up behind itself."""
    raise SystemExit(interrupted.exit_code)


@dataclass(frozen=True)
class _Gguf:
    """The file that is quantized. converted: what it is the beginning of, when it was made from a checkpoint."""

    path: Path
    converted: PartFile | None = None


@dataclass(frozen=True)
class _Command:
    """One run of the command, with what the user chose."""

    settings: Settings
    source: str
    output: Path | None
    dry_run: bool
    strict: bool
    allow_requantize: bool
    check: bool
    yes: bool
    as_json: bool

    def run(self) -> int:
        """Returns the exit code. Raises OctavoError."""
        source = find_source(self.source, allow_requantize=self.allow_requantize, status=StatusLine())
        name = safe_name(f"{source.name}-{self.settings.type.name}")
        out = self.output or models_folder() / f"{name}.gguf"
        check_output(source.path, out)
        with _as_gguf(source, out) as gguf:
            started = time.monotonic()
            plan = self._plan(gguf, source, out)
            if self.dry_run:
                return 0
            self._ask_to_replace(out)
            self._write(gguf, out, plan)
            seconds = time.monotonic() - started
            model = self._install(source, out)
            if not self.as_json:
                write_text(describe_result(plan, model, seconds))
            quality = self._measure(gguf, out) if self.check else None
        if self.as_json:
            write_json(plan_as_dict(plan, self.settings, out) | result_as_dict(model, seconds, quality))
        elif quality:
            write_text(describe_quality(quality))
        return 0

    def _plan(self, gguf: _Gguf, source: Source, out: Path) -> Plan:
        """Make it, show it, and check that it is what the user allows."""
        plan = make_plan(gguf.path, self.settings)
        if not self.as_json:
            write_text(describe_plan(plan, self.settings, source.name, out))
        check_plan(
            plan,
            self.settings,
            out,
            allow_requantize=self.allow_requantize,
            strict=self.strict,
            is_converted=gguf.converted is not None,
        )
        if self.dry_run and self.as_json:
            write_json(plan_as_dict(plan, self.settings, out))
        return plan

    def _ask_to_replace(self, out: Path) -> None:
        """Raises QuantizeError, or click.Abort, unless the file that is there may go."""
        if self.yes or not os.path.lexists(out):
            return
        if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
            raise QuantizeError(
                f"There is a file '{one_line(str(out))}' already: give --yes to replace it, or another name with -o."
            )
        click.confirm(f"Replace '{one_line(str(out))}'?", abort=True, err=True)

    def _write(self, gguf: _Gguf, out: Path, plan: Plan) -> None:
        if gguf.converted and not plan.changes:
            keep_converted(gguf.converted, out, plan)
            return
        with step_progress() as bars:
            bar = bars.add_task("", total=len(plan.tensors))

            def on_step(step: Step) -> None:
                bars.update(bar, completed=step.done, total=step.total, description=label(step.name))

            write_file(gguf.path, out, self.settings, plan, on_step)

    def _install(self, source: Source, out: Path) -> InstalledModel:
        """Enter the file, as the user's own where the user said where to put it."""
        is_ours = out.absolute().parent == models_folder().absolute()
        origin = str(source.path.absolute()) if os.path.exists(os.path.expanduser(self.source)) else self.source
        name = safe_name(out.name)
        return Catalogue().add(name, (out,), Origin.MADE if is_ours else Origin.LINKED, origin)

    def _measure(self, gguf: _Gguf, out: Path) -> Quality:
        with step_progress() as bars:
            bar = bars.add_task("Comparing predictions")

            def on_step(step: Step) -> None:
                bars.update(bar, completed=step.done, total=step.total)

            return measure_quality(gguf.path, out, self.settings.threads, on_step)


@contextmanager
def _as_gguf(source: Source, out: Path) -> Iterator[_Gguf]:
    """The source's GGUF file; that of a checkpoint is made beside `out`, and gone at the end of the block."""
    if not source.is_checkpoint:
        yield _Gguf(source.path)
        return
    from models.convert import convert  # noqa: PLC0415 - gguf and its tokenizers are for checkpoints alone

    with PartFile(out.with_name(f"{safe_name(source.name)}-converted.gguf"), replaces=True) as part:
        with byte_progress() as bars:
            bar = bars.add_task(label(f"Converting {source.name}"))

            def progress(done: int, total: int) -> None:
                bars.update(bar, completed=done, total=total)

            convert(source.path, part.part, progress)
        yield _Gguf(part.part, part)
