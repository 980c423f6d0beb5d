"""The lines around a message, in words: who wrote it, how far it is, what it cost, and how it ended."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from app.chat.conversation import Message, MessageState, ReplyFigures
from engine.messages import Role

_NAMES = {Role.USER: "You", Role.SYSTEM: "System", Role.TOOL: "Tool"}

_ENDS = {
    MessageState.STOPPED: "stopped",
    MessageState.CUT: "cut at its limit",
    MessageState.FAILED: "failed",
    MessageState.INTERRUPTED: "interrupted: the app ended",
}

CONTINUABLE = frozenset(_ENDS)
"""How replies end that may go on."""

_BAR = 16
"""Cells of the bar that shows how far a prompt is."""


class MessagePlace(NamedTuple):
    """Where a message is: the number of its branch, how many there are here, and whether the path ends with it."""

    branch: int
    n_branches: int
    is_last: bool


def heading(message: Message, model: str, place: MessagePlace, now: datetime) -> str:
    """ "Qwen3-4B · ‹ 2/3 › · 14:32", with the date if it is not today's."""
    created, now = message.created.astimezone(), now.astimezone()
    moment = f"{created:%H:%M}" if created.date() == now.date() else f"{created:%Y-%m-%d %H:%M}"
    branch = f"‹ {place.branch}/{place.n_branches} ›" if place.n_branches > 1 else ""
    return _joined(_NAMES.get(message.role) or model or "Model", branch, moment)


def prompt_progress(done: int, total: int, reused: int) -> str:
    """A bar of what was found in the cache, what has been computed and what is to do, and the same in numbers."""
    cells = [round(_BAR * min(n / total, 1)) if total else 0 for n in (reused, done)]
    bar = "▓" * cells[0] + "█" * (cells[1] - cells[0]) + "░" * (_BAR - max(cells))
    return f"Reading {bar} {done:,} of {total:,} tokens" + (f", ▓ {reused:,} reused" if reused else "")


def figures(message: Message, error: str, key: str) -> str:
    """How a reply ended, and what it cost. error: why it failed. key: what the user presses to let it go on."""
    costs = _costs(message.figures) if message.figures else []
    end = _ENDS.get(message.state, "")
    if message.state is MessageState.FAILED and error:
        end = f"failed: {error}"
    return _joined(end, f"{key} continues" if end and key else "", *costs)


def _costs(costs: ReplyFigures) -> list[str]:
    return [
        f"{costs.decode_tok_s:.1f} tok/s" if costs.decode_tok_s is not None else "",
        f"TTFT {costs.ttft_s:.2f} s",
        f"{costs.generated_tokens:,} tokens",
        f"{costs.reused_tokens:,} reused + {costs.computed_tokens:,} computed",
    ]


def thought_title(text: str, seconds: float | None, *, is_open: bool) -> str:
    """ "Thought for 4.2 s · 120 words". is_open: it goes on."""
    words = len(text.split())
    verb = "Thinking" if is_open else "Thought"
    return _joined(
        verb if seconds is None else f"{verb} for {seconds:.1f} s", f"{words:,} word{'' if words == 1 else 's'}"
    )


def text_size(text: str) -> str:
    """ "1.0 MB, 20,000 lines"."""
    size = len(text.encode("utf-8", "replace"))
    if size < 1000:
        shown = f"{size} byte{'' if size == 1 else 's'}"
    else:
        shown = f"{size / 1000:.1f} kB" if size < 999_950 else f"{size / 1e6:,.1f} MB"
    lines = text.count("\n") + 1
    return f"{shown}, {lines:,} line{'' if lines == 1 else 's'}"


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
