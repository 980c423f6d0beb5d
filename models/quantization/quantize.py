"""Quantizing a model from its source to a file that is whole or not there: plan, check, write, validate."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from engine import ggml
from engine.errors import ModelFileError
from engine.gguf_file import GgufFile
from engine.memory import available_memory
from engine.printable import one_line
from engine.units import format_bytes
from models.errors import QuantizeError
from models.folders import models_folder
from models.part_file import PartFile, remove_abandoned
from models.quantization.plan import Compare, DryRun, Plan, Settings, Step, Write, type_counts
from models.quantization.process import QuantizeProcess
from models.quantization.quality import Quality
from models.shards import shards_of

_SMALLEST_PIECE, _LARGEST_PIECE = 64 * 2**20, 2**30
"""Bounds of the memory that the tensor at work may take: more than a GiB makes nothing faster."""


def check_settings(settings: Settings) -> None:
    """Before anything is read. Raises QuantizeError when the type needs importances and none are given."""
    if settings.type.needs_imatrix and not settings.imatrix:
        raise QuantizeError(
            f"{settings.type.name} without an importance matrix would be garbage: give the file that llama-imatrix "
            "made of this model (repositories of GGUF often have it) with --imatrix, or choose a type that needs none, "
            "such as Q2_K or Q3_K_S."
        )


def check_output(source: Path, out: Path) -> None:
    """Raises QuantizeError when `out` can take no file, or is the source.

    If it is in the models folder, that is made, and cleared of what killed commands have left.
    """
    if os.path.isdir(out):
        raise QuantizeError(f"'{one_line(str(out))}' is a folder: give -o the name of a file in it.")
    if os.path.exists(out) and not os.path.isfile(out):
        raise QuantizeError(f"'{one_line(str(out))}' is a device, and no file: give another name with -o.")
    if out.parent == models_folder():
        _make_models_folder()
    if not os.path.isdir(out.parent):
        raise QuantizeError(f"There is no folder '{one_line(str(out.parent))}': make it, or give another name with -o.")
    shards = [shard for shard in shards_of(source) if os.path.exists(shard)]
    if os.path.exists(out) and any(os.path.samefile(shard, out) for shard in shards):
        raise QuantizeError(f"'{one_line(str(out))}' is the source itself: give another name with -o.")


def _make_models_folder() -> None:
    folder = models_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise QuantizeError(
            f"The folder '{one_line(str(folder))}' cannot be made ({error.strerror}): set OCTAVO_DATA_DIR to another "
            "one, or give a name with -o."
        ) from None
    remove_abandoned(folder)


def make_plan(source: Path, settings: Settings) -> Plan:
    """What quantizing will do to each tensor, by llama.cpp's dry run. Raises what it raises, and QuantizeError."""
    with QuantizeProcess() as process:
        plan = process.run(DryRun(source, settings))
    assert isinstance(plan, Plan)
    return plan


def check_plan(
    plan: Plan, settings: Settings, out: Path, *, allow_requantize: bool, strict: bool, is_converted: bool
) -> None:
    """Raises QuantizeError when the plan is not what the user allows, or the disk has no room for it.

    is_converted: the source is made for this, and becomes the result if nothing in it changes.
    """
    name = settings.type.name
    if not plan.changes and not is_converted:
        raise QuantizeError(f"No tensor of the source would change: all have the types already that {name} gives them.")
    again = [tensor for tensor in plan.tensors if tensor.is_quantized_again]
    if again and not allow_requantize:
        types = [tensor.before for tensor in again]
        raise QuantizeError(why_not_again(f"The source ({type_counts(types)} tensors)", types))
    if strict and plan.fallbacks:
        raise QuantizeError(
            f"{describe_fallbacks(plan)}, which --strict refuses: choose a type with blocks of 32, such as Q8_0, Q5_1, "
            "IQ4_NL or Q4_0."
        )
    needed, free = disk_needed(plan, is_converted=is_converted), free_disk(out)
    if needed > free:
        raise QuantizeError(
            f"{format_bytes(needed)} of disk are needed and '{one_line(str(out.absolute().parent))}' has "
            f"{format_bytes(free)} free: make room, or write elsewhere with -o."
        )


def why_not_again(what: str, types: Collection[str]) -> str:
    """The sentence that refuses a source that has tensors of the quantized `types` already. what: to call it."""
    little = ", though from q8_0 that is little" if set(types) == {"q8_0"} else ""
    return (
        f"{what} is quantized already: what the first quantization lost stays lost, and a second one loses "
        f"more{little}. Take the F16 or BF16 version of the model, or give --allow-requantize to go on."
    )


def describe_fallbacks(plan: Plan) -> str:
    """How many tensors get a substitute, how much of the model that is, why, and what they get."""
    rows = sorted({tensor.row for tensor in plan.fallbacks})
    n = len(plan.fallbacks)
    return (
        f"{n:,} of {len(plan.tensors):,} tensors ({plan.fallback_share:.1%} of the weights) "
        f"{'falls' if n == 1 else 'fall'} back to another type, "
        f"as rows of {', '.join(map(str, rows))} weights do not divide into the type's blocks "
        f"({type_counts(tensor.after for tensor in plan.fallbacks)})"
    )


def disk_needed(plan: Plan, *, is_converted: bool) -> int:
    """Bytes that have to be free: of the result, and of what a checkpoint is converted to before."""
    return (plan.bytes_before if is_converted else 0) + (plan.bytes_after if plan.changes else 0)


def free_disk(out: Path) -> int:
    """Bytes free in the folder of `out`."""
    return shutil.disk_usage(out.absolute().parent).free


def piece_bytes() -> int:
    """Memory that the tensor at work may take: half of what is available, within bounds."""
    return max(_SMALLEST_PIECE, min(_LARGEST_PIECE, available_memory() // 2))


def write_file(source: Path, out: Path, settings: Settings, plan: Plan, on_step: Callable[[Step], object]) -> None:
    """Write `out`, in the place of a file of that name if there is one; it appears when it is whole and valid.

    Whatever ends this before leaves the earlier file and no other. Raises what the process raises, QuantizeError, and
    CopyError when another command is writing the same file.
    """
    with _explained(out), PartFile(out, replaces=True) as target:
        with QuantizeProcess(keep=target.stream.fileno()) as process:
            process.run(Write(source, target.part, settings, piece_bytes()), on_step)
        validate(target.part, plan)
        target.finish()


@contextlib.contextmanager
def part_for_conversion(out: Path) -> Iterator[PartFile]:
    """The file that a checkpoint is converted to before it becomes `out`, gone at the end of the block.

    Raises QuantizeError when it cannot be made, and CopyError when another command is converting for the same file.
    """
    with contextlib.ExitStack() as stack:
        with _explained(out):
            part = stack.enter_context(PartFile(out, replaces=True, stage=".converted"))
        yield part


def keep_converted(converted: PartFile, plan: Plan) -> None:
    """Let a converted file be the result as it is. Raises QuantizeError."""
    with _explained(converted.target):
        validate(converted.part, plan)
        converted.finish()


@contextlib.contextmanager
def _explained(out: Path) -> Iterator[None]:
    """Turn what the system says into a sentence."""
    try:
        yield
    except OSError as error:
        raise QuantizeError(f"'{one_line(str(out))}' cannot be written ({error.strerror}): check the folder.") from None


def measure_quality(source: Path, made: Path, threads: int, on_step: Callable[[Step], object]) -> Quality:
    """Compare the predictions of both files, see quality.py. Raises what it raises, and QuantizeError."""
    with QuantizeProcess() as process:
        quality = process.run(Compare(source, made, threads), on_step)
    assert isinstance(quality, Quality)
    return quality


def validate(path: Path, plan: Plan) -> None:
    """Read the file back: every tensor is there, whole, in the type that was planned. Raises QuantizeError."""
    try:
        file = GgufFile.open(path)
    except ModelFileError as error:
        raise QuantizeError(f"llama.cpp wrote a file that cannot be read, and it was removed. {error}") from None
    planned = {tensor.name: tensor.after for tensor in plan.tensors}
    written = {tensor.name: ggml.type_name(tensor.type).decode() for tensor in file.tensors.values()}
    if planned != written:
        n = len({name for name, _ in planned.items() ^ written.items()})
        raise QuantizeError(f"llama.cpp wrote a file that differs from its own plan in {n:,} tensors; it was removed.")
