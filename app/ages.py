"""How long ago something was, worded for people."""

from __future__ import annotations

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_UNITS = (
    (365 * _DAY, "year"),
    (30 * _DAY, "month"),
    (7 * _DAY, "week"),
    (_DAY, "day"),
    (_HOUR, "hour"),
    (_MINUTE, "minute"),
)


def age(moment: datetime | None, now: datetime) -> str:
    """ "3 days ago"; "just now" for what is less than a minute ago or, by a wrong clock, to come; "never" for None."""
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            n = int(seconds // size)
            return f"1 {unit} ago" if n == 1 else f"{n} {unit}s ago"
    return "just now"
