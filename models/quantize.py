"""Quantizing a model from its source to a file that is whole or not there: plan, check, write, validate."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from engine import ggml
from engine.errors import ModelFileError
from engine.gguf_file import GgufFile
from engine.memory import available_memory
from engine.printable import one_line
from engine.units import format_bytes
from models.errors import QuantizeError
from models.part_file import PartFile
from models.quantize_plan import DryRun, Plan, Settings, Step, Write, type_counts
from models.quantize_process import QuantizeProcess

_SMALLEST_PIECE, _LARGEST_PIECE = 64 * 2**20, 2**30
"""Bounds of the memory that the tensor at work may take: more than a GiB makes nothing faster."""


def check_settings(settings: Settings) -> None:
    """Before anything is read. Raises QuantizeError when the type needs importances and none are given."""
    if settings.type.needs_imatrix and not settings.imatrix:
        raise QuantizeError(
            f"{settings.type.name} without an importance matrix would be garbage: give the file that llama-imatrix made "
            "of this model (repositories of GGUF often have it) with --imatrix, or choose a type that needs none, such "
            "as Q2_K or Q3_K_S."
        )


def check_names(source: GgufFile, out: Path) -> None:
    """Raises QuantizeError when the output would take the place of a file that is being read."""
    if any(out.exists() and os.path.samefile(path, out) for path in source.paths):
        raise QuantizeError(f"'{one_line(str(out))}' is the source itself: give another name with -o.")


def make_plan(source: Path, settings: Settings) -> Plan:
    """What quantizing will do to each tensor, by llama.cpp's dry run. Raises what it raises, and QuantizeError."""
    with QuantizeProcess() as process:
        plan = process.run(DryRun(source, settings))
    assert isinstance(plan, Plan)
    return plan


def check_plan(plan: Plan, settings: Settings, out: Path, *, allow_requantize: bool, strict: bool) -> None:
    """Raises QuantizeError when the plan is not what the user allows, or the disk has no room for it."""
    name = settings.type.name
    again = [tensor for tensor in plan.tensors if tensor.is_quantized_again]
    if again and not allow_requantize:
        raise QuantizeError(_why_not_again([tensor.before for tensor in again], name))
    if strict and plan.fallbacks:
        raise QuantizeError(
            f"{describe_fallbacks(plan)}, which --strict refuses: choose a type with blocks of 32, such as Q8_0, Q5_1, "
            "IQ4_NL or Q4_0."
        )
    free = free_disk(out)
    if plan.bytes_after > free:
        raise QuantizeError(
            f"The result needs {format_bytes(plan.bytes_after)} and '{one_line(str(out.parent))}' has "
            f"{format_bytes(free)} free: make room, or write elsewhere with -o."
        )


def _why_not_again(types: list[str], name: str) -> str:
    reason = "what the first quantization lost stays lost, and the second loses more"
    if all(kind == "q8_0" for kind in types):
        reason += ", though from q8_0 that is little"
    return (
        f"The source is quantized already ({type_counts(types)} tensors would be quantized again as {name}): {reason}. "
        "Take the F16 or BF16 version of the model, or give --allow-requantize to go on."
    )


def describe_fallbacks(plan: Plan) -> str:
    """How many tensors get a substitute, how much of the model that is, why, and what they get."""
    rows = sorted({tensor.row for tensor in plan.fallbacks})
    n = len(plan.fallbacks)
    return (
        f"{n:,} of {len(plan.tensors):,} tensors ({plan.fallback_share:.1%} of the weights) fall back to another type, as "
        f"rows of {', '.join(map(str, rows))} weights do not divide into the type's blocks "
        f"({type_counts(tensor.after for tensor in plan.fallbacks)})"
    )


def free_disk(out: Path) -> int:
    """Bytes free where `out` will be, whether or not its folder exists yet."""
    folder = next(folder for folder in (out.absolute().parent, *out.absolute().parents) if folder.exists())
    return shutil.disk_usage(folder).free


def piece_bytes() -> int:
    """Memory that the tensor at work may take: half of what is available, within bounds."""
    return max(_SMALLEST_PIECE, min(_LARGEST_PIECE, available_memory() // 2))


def write_file(
    source: Path, out: Path, settings: Settings, plan: Plan, piece: int, on_step: Callable[[Step], object]
) -> None:
    """Write `out`, in the place of a file of that name if there is one; it appears when it is whole and valid.

    Whatever ends this before leaves the earlier file and no other. Raises what the process raises, and QuantizeError.
    """
    out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with PartFile(out, replaces=True) as target:
        with QuantizeProcess(keep=target.stream.fileno()) as process:
            process.run(Write(source, target.part, settings, piece), on_step)
        validate(target.part, plan)
        target.finish()


def validate(path: Path, plan: Plan) -> None:
    """Read the file back: every tensor is there, inside the file, in the type that was planned. Raises QuantizeError."""
    try:
        file = GgufFile.open(path)
    except ModelFileError as error:
        raise QuantizeError(f"llama.cpp wrote a file that cannot be read, and it was removed. {error}") from None
    planned = {tensor.name: tensor.after for tensor in plan.tensors}
    written = {tensor.name: ggml.type_name(tensor.type).decode() for tensor in file.tensors.values()}
    if planned != written:
        n = len(planned.items() ^ written.items())
        raise QuantizeError(f"llama.cpp wrote a file that differs from its own plan in {n:,} tensors; it was removed.")
