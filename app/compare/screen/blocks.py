"""Bars of blocks, to an eighth of a cell."""

from __future__ import annotations

_FULL = "█"
_PARTS = " ▏▎▍▌▋▊▉"
_LEVELS = " ▁▂▃▄▅▆▇"


def bar(part: float, width: int) -> str:
    """A bar from the left, of that part of `width` cells; something is to be seen of all that is more than nothing."""
    eighths = min(8 * width, max(round(8 * width * part), 1 if part > 0 else 0))
    full, rest = divmod(eighths, 8)
    return (_FULL * full + (_PARTS[rest] if rest else "")).ljust(width)


def column(part: float, height: int) -> list[str]:
    """A bar from the bottom, of that part of `height` cells: its cells from the top to the bottom."""
    eighths = min(8 * height, max(round(8 * height * part), 1 if part > 0 else 0))
    cells = [min(8, max(0, eighths - 8 * row)) for row in range(height)]
    return [_FULL if cell == 8 else _LEVELS[cell] for cell in reversed(cells)]
