"""Numbers worded for people."""

from __future__ import annotations

_STEPS = ("KiB", "MiB", "GiB", "TiB")


def format_bytes(n: int) -> str:
    """Bytes in the largest binary unit that keeps the figure at 1 or more: 48,525,000,000 is "45.2 GiB"."""
    if n < 1024:
        return "1 byte" if n == 1 else f"{n} bytes"
    value = float(n)
    for unit in _STEPS:
        value /= 1024
        if value < 1024 or unit == _STEPS[-1]:
            break
    return f"{value:,.1f} {unit}"


def short_count(n: int) -> str:
    """A number in three or four characters, for people: 8,030,261,248 is "8.0B"."""
    for size, unit in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if n >= size:
            return f"{n / size:.1f}{unit}"
    return str(n)
