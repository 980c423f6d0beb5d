"""The calls of llama.cpp's own quantizer. They run in a process of their own: see models/quantization/worker.py."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine import ggml
from engine.gguf_file import GgufFile, TensorInfo
from engine.native import llama, log_to
from engine.printable import one_line
from models.errors import QuantizeError
from models.quantization.imatrix import Importances, check_importances, read_imatrix
from models.quantization.log import Choice, QuantizeLog
from models.quantization.plan import EMBEDDINGS, OUTPUT, DryRun, Plan, Settings, Step, TensorPlan, Write

_N_TYPES = 43
"""GGML_TYPE_COUNT; asked for a number beyond it, ggml reads outside its table."""
_LONGEST_TEXT = 127
"""Bytes of a text in llama_model_kv_override, besides the 0 at its end."""
_ALIGNMENT_KEY = "general.alignment"
_ALIGNMENT = 32
"""What the quantizer aligns its output to, whatever the source says of itself."""


def dry_run(job: DryRun) -> Plan:
    """What quantizing will do. Raises ModelFileError, or QuantizeError when llama.cpp or the importances forbid it."""
    file = GgufFile.open(job.source)
    if not file.tensors:
        raise QuantizeError(f"'{one_line(str(file.path))}' has no tensors: there is nothing to quantize.")
    importances = _importances(job.settings)
    _check_chosen_types(file, job.settings)
    log = _quantize(file, None, job.settings, importances, lambda _: None)
    if set(log.choices) != set(file.tensors):
        raise QuantizeError(
            f"llama.cpp does not see the tensors of '{one_line(str(file.path))}' that the file lists: it is damaged."
        )
    tensors = tuple(
        _tensor_plan(tensor, log.choices[name], name in log.fell_back, job.settings)
        for name, tensor in file.tensors.items()
    )
    plan = Plan(tensors, file.n_bytes - sum(tensor.n_bytes for tensor in file.tensors.values()))
    check_importances(plan, job.settings.type, importances)
    return plan


def write(job: Write, on_step: Callable[[Step], object]) -> None:
    """Write the file. Raises what `dry_run` raises, also when the disk is full."""
    _quantize(GgufFile.open(job.source), job.out, job.settings, _importances(job.settings), on_step, job.piece)


def _tensor_plan(tensor: TensorInfo, choice: Choice, fell_back: bool, settings: Settings) -> TensorPlan:
    row, after = tensor.shape[0], _number(choice.after)
    n_weights = int(np.prod(tensor.shape, dtype=np.int64))
    n_rows = n_weights // row if row else 0
    return TensorPlan(
        name=tensor.name,
        row=row,
        n_experts=tensor.shape[2] if len(tensor.shape) > 2 else 1,
        n_weights=n_weights,
        before=choice.before,
        after=choice.after,
        bytes_before=tensor.n_bytes,
        bytes_after=n_rows * ggml.row_size(after, row),
        falls_back=fell_back or _is_silent_fallback(tensor, choice, settings),
    )


def _is_silent_fallback(tensor: TensorInfo, choice: Choice, settings: Settings) -> bool:
    """Whether the output, or the embeddings that serve as output, are q8_0 only because their rows do not fit.

    llama.cpp neither says nor counts that.
    """
    if tensor.name not in (OUTPUT, *EMBEDDINGS) or settings.pure or choice.after != "q8_0":
        return False
    chosen = settings.output_type if tensor.name == OUTPUT else settings.embedding_type
    return chosen is None and tensor.shape[0] % ggml.blck_size(_number(settings.type.base)) != 0


def _check_chosen_types(file: GgufFile, settings: Settings) -> None:
    """llama.cpp would write rows that cannot be, stop the process, or do as if nothing had been chosen."""
    if settings.output_type and OUTPUT not in file.tensors:
        raise QuantizeError(
            "The model has no output matrix of its own, as its token embeddings serve for that: give --embedding-type "
            "instead of --output-type."
        )
    for name, chosen, option in (
        (OUTPUT, settings.output_type, "--output-type"),
        *((name, settings.embedding_type, "--embedding-type") for name in EMBEDDINGS),
    ):
        tensor = file.tensors.get(name)
        if tensor and chosen and tensor.shape[0] % ggml.blck_size(_number(chosen)):
            raise QuantizeError(
                f"The rows of {name} have {tensor.shape[0]:,} weights, which do not divide into the blocks of "
                f"{ggml.blck_size(_number(chosen))} that {chosen} needs: choose another {option}."
            )


def _importances(settings: Settings) -> Importances:
    return read_imatrix(settings.imatrix) if settings.imatrix else {}


def _quantize(
    file: GgufFile,
    out: Path | None,
    settings: Settings,
    importances: Importances,
    on_step: Callable[[Step], object],
    piece: int = 0,
) -> QuantizeLog:
    """Call the quantizer; without `out` it only says what it would do."""
    log = QuantizeLog(on_step)
    params = llama.llama_model_quantize_default_params()
    params.nthread = settings.threads
    params.ftype = settings.type.ftype
    params.pure = settings.pure
    params.dry_run = out is None
    params.allow_requantize = True  # models/quantization/quantize.py has asked for leave
    params.max_buf_size = piece
    if settings.output_type:
        params.output_tensor_type = _number(settings.output_type)
    if settings.embedding_type:
        params.token_embedding_type = _number(settings.embedding_type)
    entries = _imatrix_entries(importances)
    overrides = _overrides(file, settings, importances)
    if importances:
        params.imatrix = entries
    params.kv_overrides = overrides
    target = os.fsencode(out) if out else b""
    with log_to(log.take):
        status = llama.llama_model_quantize(os.fsencode(file.path), target, ctypes.byref(params))
    if status != 0:
        raise _failure(file, log, out)
    return log


def _failure(file: GgufFile, log: QuantizeLog, out: Path | None) -> QuantizeError:
    if out and "iostream" in log.reason:  # all that C++ says of a write that failed
        written = os.path.getsize(out)
        error = QuantizeError(
            f"The result could not be written beyond {written:,} bytes: the disk is full, or files may not be larger; "
            "make room, or write elsewhere with -o. Nothing was changed."
        )
    else:
        error = QuantizeError(f"llama.cpp cannot quantize '{one_line(str(file.path))}' ({one_line(log.reason)}).")
    for line in log.troubles:
        error.add_note(one_line(line))
    return error


def _imatrix_entries(importances: Importances) -> Any:
    """An array that ends with an empty entry; it points into the arrays of `importances`."""
    entries = (llama.llama_model_imatrix_data * (len(importances) + 1))()
    for entry, (name, values) in zip(entries, importances.items(), strict=False):
        entry.name = name.encode()
        entry.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        entry.size = len(values)
    return entries


def _overrides(file: GgufFile, settings: Settings, importances: Importances) -> Any:
    """Metadata to write beside the source's, under the keys that llama.cpp's own tool uses; an empty entry ends it."""
    values: dict[str, int | bytes] = {}
    if file.metadata.get(_ALIGNMENT_KEY, _ALIGNMENT) != _ALIGNMENT:
        values[_ALIGNMENT_KEY] = _ALIGNMENT
    if settings.imatrix:
        name = one_line(settings.imatrix.name).encode()[:_LONGEST_TEXT]
        values["quantize.imatrix.file"] = name.decode("utf-8", "ignore").encode()
        values["quantize.imatrix.entries_count"] = len(importances)
    overrides = (llama.llama_model_kv_override * (len(values) + 1))()
    for override, (key, value) in zip(overrides, values.items(), strict=False):
        override.key = key.encode()
        if isinstance(value, int):
            override.tag = llama.LLAMA_KV_OVERRIDE_TYPE_INT
            override.value.val_i64 = value
        else:
            override.tag = llama.LLAMA_KV_OVERRIDE_TYPE_STR
            override.value.val_str = value
    return overrides


def _number(type_name: str) -> int:
    """enum ggml_type by name."""
    return next(number for number in range(_N_TYPES) if (ggml.type_name(number) or b"").decode() == type_name)
