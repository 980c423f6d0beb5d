"""What llama.cpp 0.3.36's quantizer tells in its log, the only way that it reports progress and a dry run's result."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from models.quantization.plan import Step

_TENSOR = re.compile(r"\[ *(?P<number>\d+)/ *(?P<total>\d+)\] (?P<name>.*?) +- \[[ \d,]+\], type = +(?P<type>\S+), ")
_RESULT = re.compile(r"size = +[\d.]+ MiB(?: -> +[\d.]+ MiB)?(?: \((?P<type>\S+)\))?$")
_FALLBACK = re.compile(r"warning: (?P<name>.*?) +- ncols +\d+ not divisible by")
_REASON = re.compile(r"failed to quantize: (?P<reason>.*)")

_TROUBLE = 3
"""LOG_WARN: lines from this level on are kept to explain a failure."""
_CONTINUE = 5
_KEPT_LINES = 20


class Choice(NamedTuple):
    """The types that the dry run names for a tensor."""

    before: str
    after: str


class QuantizeLog:
    """Puts the pieces of the log together to lines, and reads them.

    choices: by tensor, from a dry run. fell_back: tensors whose rows do not fit the type that was wanted.
    reason: why the quantizer gave up, "" when it did not. troubles: other warnings and errors.
    """

    def __init__(self, on_step: Callable[[Step], object]) -> None:
        self.choices: dict[str, Choice] = {}
        self.fell_back: set[str] = set()
        self.reason = ""
        self.troubles: deque[str] = deque(maxlen=_KEPT_LINES)
        self._on_step = on_step
        self._line = ""
        self._level = 0

    def take(self, level: int, text: str) -> None:
        """A piece of the log: a part of a line, or several lines."""
        if level != _CONTINUE:
            self._level = max(level, self._level) if self._line else level
        *lines, rest = text.split("\n")
        for line in lines:
            self._read(self._line + line)
            self._line = ""
        begins = rest and not self._line
        self._line += rest
        tensor = _TENSOR.match(self._line) if begins else None
        if tensor:
            self._on_step(Step(int(tensor["number"]) - 1, int(tensor["total"]), tensor["name"]))

    def _read(self, line: str) -> None:
        tensor, fallback, reason = _TENSOR.match(line), _FALLBACK.match(line), _REASON.search(line)
        if reason:  # perhaps behind a line that was never ended
            self.reason = reason["reason"].strip()
        elif tensor:
            result = _RESULT.match(line, tensor.end())
            after = result["type"] if result and result["type"] else tensor["type"]
            self.choices[tensor["name"]] = Choice(tensor["type"], after)
        elif fallback:
            self.fell_back.add(fallback["name"])
        elif self._level >= _TROUBLE and line.strip(" ="):
            self.troubles.append(line.strip())
