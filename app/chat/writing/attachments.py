"""Text files that a prompt mentions as @path: what is sent has them as fenced blocks at its end.

A mention begins a word, and stands outside code. A path with spaces goes in quotes: @"my notes.txt". What names no
file is text: an e-mail address, a name, a decorator.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from app.chat.errors import ComposeError
from app.chat.files import quoted_path
from app.chat.writing.pastes import Pastes, Span
from engine.printable import one_line
from engine.units import format_bytes

LIMIT = 2**20
"""Bytes of a file, about a quarter of a million tokens: more than the windows of most models hold."""

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
_CODE = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_BACKTICKS = re.compile("`+")
_AFTER_A_WORD = ".,;:!?)]}'*"


class Mention(NamedTuple):
    """A file that a prompt mentions. name: as the user wrote it. span: of the mention with its @ and quotes."""

    name: str
    path: Path
    span: Span


def mentions(text: str, folder: Path) -> list[Mention]:
    """The files that a text mentions, in order. folder: what relative paths start from."""
    code = [match.span() for match in _CODE.finditer(text)]
    found = []
    for match in _MENTION.finditer(text):
        if any(start <= match.start() < end for start, end in code):
            continue
        quoted, word = match.groups()
        names = [quoted] if quoted else [word, word.rstrip(_AFTER_A_WORD)]
        for name in dict.fromkeys(names):
            path = _file(name, folder)
            if path is not None:
                end = match.end() if quoted else match.start() + 1 + len(name)
                found.append(Mention(name, path, Span(match.start(), end)))
                break
    return found


def read_text(path: Path) -> str:
    """Content of a text file. Raises ComposeError."""
    name = quoted_path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            content = stream.read(LIMIT + 1)
    except OSError as error:
        raise ComposeError(f"The file {name} cannot be read ({error.strerror}): nothing was sent.") from None
    if len(content) > LIMIT:
        raise ComposeError(
            f"The file {name} has {format_bytes(max(size, len(content)))}, and at most {format_bytes(LIMIT)} can be "
            "attached: attach a part of it."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ComposeError(
            f"The file {name} is not UTF-8 text (byte {error.start + 1:,}): only text can be attached."
        ) from None
    if "\0" in text:
        raise ComposeError(
            f"The file {name} is binary (byte {text.index(chr(0)) + 1:,} is 0): only text can be attached."
        )
    return text


def fenced(name: str, text: str) -> str:
    """A text as a Markdown code block under its name; the fence is longer than any in the text."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    language = Path(name).suffix.removeprefix(".")
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{one_line(name)}:\n{fence}{language if language.isalnum() else ''}\n{text}{end}{fence}"


def message_text(text: str, pastes: Pastes, folder: Path) -> str:
    """What is sent: pasted texts in their places, mentioned files at the end. Raises ComposeError."""
    found = mentions(text, folder)
    parts, position = [], 0
    for mention in found:
        parts += [text[position : mention.span.start], mention.name]
        position = mention.span.end
    parts.append(text[position:])
    said = "".join(pastes.expand(part) for part in parts).strip("\n").rstrip()
    files = {mention.path: mention.name for mention in reversed(found)}  # each once, by the first of its names
    blocks = [fenced(files[path], read_text(path)) for path in dict.fromkeys(mention.path for mention in found)]
    return "\n\n".join([said, *blocks])


def _file(name: str, folder: Path) -> Path | None:
    try:
        path = folder / Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL, a home folder that is unknown
        return None
