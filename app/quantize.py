"""`octavo quantize`: make a model smaller, and say beforehand and afterwards what that costs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

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
from app.questions import can_ask, confirm
from app.terminal import Interrupted, StatusLine, interrupts_to, tolerate_encoding, write_json, write_text
from engine.printable import one_line
from engine.threads import usable_cores
from models.catalogue import Catalogue, InstalledModel, Origin
from models.errors import QuantizeError
from models.folders import models_folder
from models.importing import check_language_model
from models.names import safe_name
from models.part_file import PartFile
from models.quantization.plan import Plan, Settings, Step
from models.quantization.quality import Quality
from models.quantization.quantize import (
    check_output,
    check_plan,
    check_settings,
    keep_converted,
    make_plan,
    measure_quality,
    part_for_conversion,
    write_file,
)
from models.quantization.types import TENSOR_TYPES, find_type

if TYPE_CHECKING:
    from models.conversion.convert import Conversion

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
    if not source or not type_name:
        raise click.UsageError("Give SRC and TYPE; 'octavo quantize --types' lists the types.")
    settings = Settings(find_type(type_name), threads or usable_cores(), pure, output_type, embedding_type, imatrix)
    check_settings(settings)
    with interrupts_to(_stop):
        return _Command(settings, source, **choices).run()


def _stop(interrupted: Interrupted) -> NoReturn:
    """An exception, as nothing else ends the wait for native code; every block on the way cleans up behind itself."""
    raise SystemExit(interrupted.exit_code)


class _Gguf(NamedTuple):
    """The file that is quantized. conversion, part: when it is made from a checkpoint; its weights come last."""

    path: Path
    conversion: Conversion | None = None
    part: PartFile | None = None


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
        if not source.is_checkpoint:
            check_language_model(source.path)
        name = f"{safe_name(source.name)}-{self.settings.type.name}"
        out = self.output or models_folder() / f"{name}.gguf"
        check_output(source.path, out)
        with _as_gguf(source, out) as gguf:
            is_converted = gguf.conversion is not None
            plan = make_plan(gguf.path, self.settings)
            if not self.as_json:
                write_text(describe_plan(plan, self.settings, source.name, out, is_converted=is_converted))
            check_plan(
                plan,
                self.settings,
                out,
                allow_requantize=self.allow_requantize,
                strict=self.strict,
                is_converted=is_converted,
            )
            fields = plan_as_dict(plan, self.settings, out, is_converted=is_converted)
            if self.dry_run:
                if self.as_json:
                    write_json(fields)
                return 0
            if not self._may_write(out):
                return 1
            started = time.monotonic()
            self._write(gguf, source, out, plan)
            seconds = time.monotonic() - started
            model = self._install(source, out)
            if not self.as_json:
                write_text(describe_result(plan, model, seconds))
            quality = None
            try:
                if self.check:
                    quality = self._measure(gguf.path if plan.changes else out, out)
            finally:  # the file is there, whatever becomes of the comparison
                if self.as_json:
                    write_json(fields | result_as_dict(model, seconds, quality))
        if quality and not self.as_json:
            write_text(describe_quality(quality))
        return 0

    def _may_write(self, out: Path) -> bool:
        """Whether a file that is there may go. Raises QuantizeError where nobody can be asked."""
        if self.yes or not os.path.lexists(out):
            return True
        if not can_ask():
            raise QuantizeError(
                f"There is a file '{one_line(str(out))}' already: give --yes to replace it, or another name with -o."
            )
        return confirm(f"Replace '{one_line(str(out))}'?")

    def _write(self, gguf: _Gguf, source: Source, out: Path, plan: Plan) -> None:
        if gguf.conversion and gguf.part:
            with byte_progress() as bars:
                bar = bars.add_task(label(f"Converting {source.name}"), total=None)

                def progress(done: int, total: int) -> None:
                    bars.update(bar, completed=done, total=total)

                gguf.conversion.fill(progress)
            if not plan.changes:
                keep_converted(gguf.part, plan)
                return
        with step_progress() as bars:
            bar = bars.add_task(label(f"Quantizing {source.name}"), total=len(plan.tensors))

            def on_step(step: Step) -> None:
                bars.update(bar, completed=step.done, total=step.total, description=label(step.name))

            write_file(gguf.path, out, self.settings, plan, on_step)

    def _install(self, source: Source, out: Path) -> InstalledModel:
        """Enter the file, as the user's own where the user said where to put it."""
        is_ours = out.absolute().parent == models_folder().absolute()
        is_path = os.path.exists(os.path.expanduser(self.source))
        origin = str(source.path.absolute()) if is_path else self.source
        name = safe_name(out.name)
        return Catalogue().add(name, (out,), Origin.MADE if is_ours else Origin.LINKED, origin)

    def _measure(self, source: Path, out: Path) -> Quality:
        with step_progress() as bars:
            bar = bars.add_task("Comparing predictions", total=None)

            def on_step(step: Step) -> None:
                bars.update(bar, completed=step.done, total=step.total)

            return measure_quality(source, out, self.settings.threads, on_step)


@contextmanager
def _as_gguf(source: Source, out: Path) -> Iterator[_Gguf]:
    """The source's GGUF file; that of a checkpoint, without weights so far, lies beside `out` until the block ends."""
    if not source.is_checkpoint:
        yield _Gguf(source.path)
        return
    from models.conversion.convert import Conversion  # noqa: PLC0415 - gguf and its tokenizers are for checkpoints alone

    with part_for_conversion(out) as part, Conversion(source.path, part.part) as conversion:
        yield _Gguf(part.part, conversion, part)
