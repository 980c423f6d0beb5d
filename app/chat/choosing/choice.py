"""Something to choose from a list."""

from __future__ import annotations

from typing import NamedTuple


class Choice(NamedTuple):
    """key: for whoever asked. details: a second line. is_usable: whether it can be chosen."""

    key: str
    label: str
    details: str = ""
    is_usable: bool = True

    def fits(self, words: str) -> bool:
        """Whether it has all these words, in any case."""
        text = f"{self.label} {self.details}".lower()
        return all(word in text for word in words.lower().split())
