"""The full record as a file: whole or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path

from app.compare.record import Record
from app.compare.report import as_json
from engine.errors import OctavoError
from engine.printable import json_text, one_line


def check_writable(path: Path) -> None:
    """Before minutes are spent. Raises OctavoError."""
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise OctavoError(f"'{one_line(str(path))}' cannot be written: give --save a file in a folder that is yours.")


def save(record: Record, path: Path) -> None:
    """Replaces what is there. Raises OctavoError."""
    part = path.with_name(path.name + ".part")
    try:
        try:
            part.write_text(json_text(as_json(record), indent=1) + "\n", encoding="utf-8")
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OctavoError(f"The record cannot be written to '{one_line(str(path))}': {error.strerror}.") from error


def usual_name(record: Record) -> str:
    """Of a file for it, with the model and the day."""
    model = re.sub(r"[^\w.-]+", "-", Path(record.model.file).stem)
    return f"compare-{model}-{record.created[:10]}.json"
