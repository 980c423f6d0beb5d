"""JSON files of a checkpoint, read with the types that their reader expects: anything else is one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.printable import one_line, quoted
from models.errors import ConversionError

_MOST = 2**31 - 1
"""ggml keeps sizes, positions and token ids in 32 bits."""

_LONGEST = 100_000_000
"""Bytes; three times as many as the largest tokenizer.json so far. Parsed, they take ten times as much."""

_LARGEST = 1e30
"""Far above every number in a configuration, and still a 32-bit float."""


def damaged(file: Path | str, what: str) -> ConversionError:
    """The error for a file of a checkpoint that is not what it should be."""
    return ConversionError(f"'{one_line(Path(file).name)}' is damaged: {what}; download it again.")


def content_of(path: Path) -> bytes:
    """What is in a file that describes a checkpoint. Raises ConversionError if it cannot be read or is far too long."""
    try:
        if path.stat().st_size > _LONGEST:
            raise damaged(path, f"it has more than {_LONGEST:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConversionError(f"{quoted(str(path))} cannot be read ({error.strerror}).") from None


@dataclass(frozen=True)
class JsonObject:
    """An object of a JSON file, called `file` in messages.

    A value of null is a value that is not there. Every method raises ConversionError for a value of another type
    than it is named after.
    """

    file: str
    values: Mapping[str, object]

    @classmethod
    def read(cls, path: Path) -> JsonObject:
        """The object that is the file. Raises ConversionError if it cannot be read or holds something else."""
        try:
            values = json.loads(content_of(path))
        except (ValueError, RecursionError):
            raise damaged(path, "it is not JSON") from None
        if not isinstance(values, dict):
            raise damaged(path, "it is no JSON object")
        return cls(path.name, values)

    @classmethod
    def read_if_there(cls, path: Path) -> JsonObject:
        """The same, or an empty object if there is no such file."""
        return cls.read(path) if path.is_file() else cls(path.name, {})

    def has(self, key: str) -> bool:
        """Whether there is a value."""
        return self.values.get(key) is not None

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from `least` to 2^31 - 1. Without a default it must be there."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self._not(key, f"a whole number from {least} to {_MOST}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0. Without a default it must be there."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST:
            raise self._not(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool | None:
        """True or false, `default` if it is not there."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self._not(key, "true or false")
        return default if value is None else value

    def text(self, key: str, default: str = "") -> str:
        """A text, `default` if it is not there."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, str):
            raise self._not(key, "a text")
        return default if value is None else value

    def nested(self, key: str) -> JsonObject:
        """An object, an empty one if it is not there."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            raise self._not(key, "an object")
        return JsonObject(self.file, value or {})

    def array(self, key: str) -> list[object]:
        """A list, an empty one if it is not there."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self._not(key, "a list")
        return value or []

    def nested_array(self, key: str) -> list[JsonObject]:
        """A list of objects, an empty one if it is not there."""
        values = self.array(key)
        if not all(isinstance(value, dict) for value in values):
            raise self._not(key, "a list of objects")
        return [JsonObject(self.file, value) for value in values if isinstance(value, dict)]

    def damaged(self, what: str) -> ConversionError:
        """The error for this file."""
        return damaged(self.file, what)

    def _required(self, key: str, default: float | None) -> object:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise self.damaged(f"it has no {quoted(key)}")
        return value

    def _not(self, key: str, what: str) -> ConversionError:
        return self.damaged(f"its {quoted(key)} is not {what}")
