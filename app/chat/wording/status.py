"""What the line below the composer says, in as many cells as there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.chat.conversation import Conversation
from engine.messages import Loaded
from engine.printable import one_line
from engine.sequence import KvStats
from engine.units import format_bytes

NEARLY_FULL = 0.85
"""Part of the window beyond which the user is warned."""

SEPARATOR = "  ·  "
_BAR_CELLS = 10
_SHORT_NAME = 16


@dataclass(frozen=True)
class Status:
    """What there is to say. Each field may be unknown.

    loading: fraction of the model. used: tokens of the window that the shown chat takes. kv: of the engine.
    elsewhere, unread: chats that are being answered, or were, where the user does not look. room_key: the key by which
    the user makes room.
    """

    model: str = ""
    loading: float | None = None
    loaded: Loaded | None = None
    is_down: bool = False
    used: int | None = None
    kv: KvStats | None = None
    elsewhere: int = 0
    unread: int = 0
    room_key: str = ""

    @property
    def fullness(self) -> float | None:
        """Part of the window that is used."""
        if self.loaded is None or self.used is None:
            return None
        return self.used / self.loaded.context


class Part(NamedTuple):
    """Something to say, in wordings from the longest to the shortest.

    losses: what is lost with each step to the next wording, the last of which says nothing: small ones are taken first.
    """

    name: str
    wordings: tuple[str, ...]
    losses: tuple[int, ...]


def window_used(conversation: Conversation) -> int | None:
    """Tokens that the last reply of the path that is shown found and left in the window; None if none was counted."""
    for message in reversed(conversation.path()):
        if message.figures is not None and message.figures.prompt_tokens:  # not stopped before it began
            return message.figures.prompt_tokens + message.figures.generated_tokens
    return None


def parts_of(status: Status) -> list[Part]:
    """All that there is to say, from the left to the right."""
    parts = [_model(status)]
    if status.loading is not None:
        parts.append(Part("loading", (f"loading {status.loading:.0%}",), (11,)))
    elif status.is_down:
        parts.append(Part("warning", ("the engine has stopped", "stopped"), (8, 11)))
    elif status.loaded is not None:
        parts += [_engine(status.loaded), _window(status, status.loaded)]
        if status.kv is not None:
            parts.append(_kv(status.kv))
    if activity := _activity(status):
        parts.append(activity)
    return parts


def fitted(parts: Sequence[Part], width: int) -> list[tuple[str, str]]:
    """Name and wording of the parts in so many cells, with as little lost as can be."""
    chosen = dict.fromkeys((part.name for part in parts), 0)

    def shown() -> list[tuple[str, str]]:
        texts = ((part.name, (*part.wordings, "")[chosen[part.name]]) for part in parts)
        return [(name, text) for name, text in texts if text]

    for _, name in sorted((loss, part.name) for part in parts for loss in part.losses):
        if len(SEPARATOR.join(text for _, text in shown())) <= width:
            break
        chosen[name] += 1
    return shown()


def _model(status: Status) -> Part:
    name = one_line(status.model) or "no model"
    short = name if len(name) <= _SHORT_NAME else name[: _SHORT_NAME - 1] + "…"
    return Part("model", (name, short), (2, 9))


def _engine(loaded: Loaded) -> Part:
    return Part("engine", (one_line(loaded.engine),), (4,))


def _window(status: Status, loaded: Loaded) -> Part:
    used, fullness = status.used, status.fullness
    if used is None or fullness is None:
        return Part("window", (f"window {loaded.context:,}",), (10,))
    count = f"{used:,} of {loaded.context:,}"
    if fullness >= NEARLY_FULL:
        full = f"{fullness:.0%} full" + (f": {status.room_key}" if status.room_key else "")
        return Part("warning", (f"{bar(fullness)} {count} tokens, {full}", full), (8, 11))
    return Part("window", (f"{bar(fullness)} {count} tokens", f"{bar(fullness)} {count}", count), (5, 6, 10))


def bar(fraction: float) -> str:
    """A bar of ten cells."""
    filled = min(_BAR_CELLS, max(0, round(fraction * _BAR_CELLS)))
    return "▰" * filled + "▱" * (_BAR_CELLS - filled)


def _kv(kv: KvStats) -> Part:
    held, reserved = format_bytes(kv.bytes_resident), format_bytes(kv.bytes_contiguous_would_reserve)
    return Part("kv", (f"KV {held}, contiguous {reserved}", f"KV {held}/{reserved}"), (1, 7))


def _activity(status: Status) -> Part | None:
    long, short = [], []
    if status.elsewhere:
        long.append(f"{status.elsewhere} more being answered")
        short.append(f"◌{status.elsewhere}")
    if status.unread:
        long.append(f"{status.unread} unread")
        short.append(f"●{status.unread}")
    return Part("activity", (", ".join(long), " ".join(short)), (3, 8)) if long else None
