"""Names of installed models: a word that can be typed in a shell, shown in a terminal, and be part of a file's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container

_LONGEST = 200
"""Bytes of a name in UTF-8; file systems end at 255, of which the number of a shard and .gguf.part need 30."""


def safe_name(text: str, otherwise: str = "model") -> str:
    """What is nearest to `text` as a name: letters, digits and . _ + - of every script; without .gguf at the end.

    otherwise: the name where nothing is left.
    """
    if text.lower().endswith(".gguf"):
        text = text[:-5]
    words = "".join(character if _is_fit(character) else " " for character in text).split()
    name = "-".join(words).strip("-.")
    return name.encode()[:_LONGEST].decode("utf-8", "ignore") or otherwise


def name_in_repository(repository: str, variant: str) -> str:
    """Name of a model from the hub: that of its repository, without its owner and -GGUF, and of the variant."""
    name = re.sub(r"[-_.]gguf$", "", repository.rpartition("/")[2], flags=re.IGNORECASE)
    return safe_name(f"{name}-{variant}" if variant else name)


def free_name(name: str, taken: Container[str]) -> str:
    """`name`, or name-2, name-3 … if it is among `taken`, which are in lower case."""
    candidate, number = name, 2
    while candidate.lower() in taken:
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _is_fit(character: str) -> bool:
    return character in "._+-" or unicodedata.category(character)[0] in "LMN"
