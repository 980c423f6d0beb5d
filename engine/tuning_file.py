"""What was measured, remembered in a file from one start to the next.

    {"format": 1, "tunings": {KEY: {"threads": 2, "chunk_tokens": 512, "attention": {"unpacked_columns": 256, ...}}}}

A key names all that a measurement depends on. The file is replaced as a whole, so readers and writers need no lock:
of two processes that write at once the later one wins, and what the other one measured is measured again some day.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import ggml
from engine.attention_choice import AttentionChoice
from engine.gguf_file import GgufFile
from engine.kv_types import KvTypes
from engine.native import TESTED_VERSION
from engine.plan import ModelPlan
from engine.tuning import Tuning

_FORMAT = 1
"""To be raised whenever the compositions of attention change so much that old measurements mislead."""

_LONGEST_CHUNK = 4096
"""Tokens; no measurement comes to more."""


def tuning_key(file: GgufFile, plan: ModelPlan, types: KvTypes, threads: Sequence[int], processor: str) -> str:
    """All that the best settings depend on, in words. threads: the numbers to choose from."""
    group = plan.kv_groups[0]
    attention = plan.layers[0].attention
    weights = Counter(ggml.type_name(tensor.type).decode() for tensor in file.tensors.values())
    return ", ".join(
        [
            processor,
            f"llama-cpp-python {TESTED_VERSION}",
            f"{'/'.join(map(str, threads))} threads",
            f"KV {types.k}/{types.v}",
            f"{plan.architecture} of {len(plan.layers)} layers",
            f"embedding {plan.embedding}",
            f"feed-forward {plan.layers[0].feed_forward.up.n_out}",
            f"vocabulary {plan.vocabulary}",
            f"{attention.n_head}/{group.n_head_kv} heads of {group.head_dim_k}/{group.head_dim_v}",
            "weights " + " ".join(f"{count} {name}" for name, count in sorted(weights.items())),
        ]
    )


def recall(path: str, key: str, candidates: Sequence[int]) -> Tuning | None:
    """What was remembered under `key`, with one of the candidates for the number of threads.

    None if nothing was, or the file is missing, damaged or of another format.
    """
    entry = _read(path).get(key)
    if not isinstance(entry, dict):
        return None
    match entry:
        case {
            "threads": int(threads),
            "chunk_tokens": int(chunk_tokens),
            "attention": {
                "unpacked_columns": int(unpacked),
                "ahead_columns": int(ahead),
                "flash": bool(flash),
            },
        } if threads in candidates and 0 < chunk_tokens <= _LONGEST_CHUNK and min(unpacked, ahead) >= 0:
            return Tuning(int(threads), AttentionChoice(unpacked, ahead, flash), chunk_tokens)
    return None


def remember(path: str, key: str, tuning: Tuning) -> bool:
    """Add to the file, or replace what it says about `key`.

    Returns whether that succeeded; it is no error if not, as everything is measured again next time.
    """
    tunings = _read(path) | {key: asdict(tuning)}
    try:
        _replace(Path(path), json.dumps({"format": _FORMAT, "tunings": tunings}, indent=1))
    except OSError:
        return False
    return True


def _read(path: str) -> dict[str, Any]:
    try:
        content = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    match content:
        case {"format": int(number), "tunings": dict(tunings)} if number == _FORMAT:
            return tunings
    return {}


def _replace(path: Path, text: str) -> None:
    """Write a file that only its owner can read, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".")  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
