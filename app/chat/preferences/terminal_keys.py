"""Keys that terminals send and Textual takes for something else."""

from __future__ import annotations

import enum
from typing import Any, cast

from textual import _ansi_sequences


class _Key(enum.Enum):
    ALT_ENTER = "alt+enter"


_SEQUENCES = {"\x1b\r": (_Key.ALT_ENTER,)}
"""Most terminals, and tmux, put ESC before a key for Alt: Textual would see Escape, then an Enter that sends."""


def teach_textual() -> None:
    """Let Textual know them. It has no public way: where its table has gone, the keys are what they were."""
    table = cast("dict[str, Any]", getattr(_ansi_sequences, "ANSI_SEQUENCES_KEYS", {}))
    table.update(_SEQUENCES)
