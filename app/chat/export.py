"""A chat as a file: to read or to send (Markdown), or for another program (JSON).

JSON: {"format": "octavo-chat", "version": 1, "title": …, "exported": …, "path": [id …], "messages": [message …]}.
`path` has the ids of the messages that are shown, from the first to the last. A message is {"id", "parent", "role",
"text", "state", "created", "figures"}: `parent` is the id of the message that it follows, null for a first one, so that
messages of one parent are branches; `figures` has the fields of ReplyFigures, or is null. Times are ISO 8601.

Neither has a character that a terminal acts on: in JSON they are escaped, in Markdown made visible.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from app.chat.answering.thinking import parts
from app.chat.conversation import Conversation, Message, MessageState
from app.chat.errors import ExportError
from app.chat.files import quoted_path, write_text
from engine.messages import Role
from engine.printable import json_text, one_line, printable
from models.errors import CopyError
from models.names import free_name, safe_name
from models.part_file import PartFile

FORMAT, VERSION = "octavo-chat", 1

_NAMES = {Role.SYSTEM: "System", Role.USER: "You", Role.ASSISTANT: "Model", Role.TOOL: "Tool"}
_ENDS = {
    MessageState.COMPLETE: "",
    MessageState.STREAMING: "not complete yet",
    MessageState.STOPPED: "stopped",
    MessageState.CUT: "cut at its limit",
    MessageState.FAILED: "failed",
    MessageState.INTERRUPTED: "interrupted",
}
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Names that Windows does not give to files."""


def to_markdown(conversation: Conversation, title: str) -> str:
    """The path that is shown; thoughts are folded where Markdown is displayed."""
    return (
        "\n\n".join([f"# {one_line(title) or 'Chat'}", *(_markdown(message) for message in conversation.path())]) + "\n"
    )


def to_json(conversation: Conversation, title: str, *, branches: bool = True) -> str:
    """All messages, or those of the path that is shown."""
    path = [message.id for message in conversation.path()]
    ids = sorted(conversation.messages) if branches else path
    content = {
        "format": FORMAT,
        "version": VERSION,
        "title": title,
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "path": path,
        "messages": [
            asdict(conversation.messages[message_id])
            | {"created": conversation.messages[message_id].created.isoformat()}
            for message_id in ids
        ],
    }
    return json_text(content, indent=2) + "\n"


def safe_file_name(title: str) -> str:
    """A name for a file, without suffix, that every system takes and a shell needs no quotes for."""
    name = safe_name(title, "chat")
    return f"chat-{name}" if _DEVICES.match(name) else name


def free_path(folder: Path, title: str, suffix: str) -> Path:
    """A path in the folder that no file has, after the title of a chat. suffix: with its dot. Raises ExportError."""
    try:
        taken = {name.lower().removesuffix(suffix) for name in os.listdir(folder) if name.lower().endswith(suffix)}
    except OSError as error:
        raise ExportError(
            f"The folder {quoted_path(folder)} cannot be read ({error.strerror}): give another."
        ) from None
    return folder / (free_name(safe_file_name(title), taken) + suffix)


def write_export(target: Path, text: str) -> None:
    """Write a file that is not there yet. Raises ExportError, and leaves nothing."""
    try:
        with PartFile(target) as part:
            write_text(part, text)
            part.finish()
    except CopyError as error:
        raise ExportError(str(error)) from None
    except OSError as error:
        raise ExportError(
            f"The chat cannot be written to {quoted_path(target)} ({error.strerror}): give another place."
        ) from None


def _markdown(message: Message) -> str:
    notes = [one_line(message.figures.model) if message.figures else "", _ENDS[message.state]]
    thought, _, answer = parts(message.text, is_ended=True)
    if message.role is not Role.ASSISTANT:
        thought, answer = None, message.text
    return "\n\n".join(
        [
            f"## {_NAMES[message.role]}",
            *([f"*{', '.join(filter(None, notes))}*"] if any(notes) else []),
            *(["<details><summary>Thought</summary>", _block(thought), "</details>"] if thought else []),
            *([_block(answer)] if answer.strip() else []),
        ]
    )


def _block(text: str) -> str:
    """The text, made safe, and with its last code block closed, which a stopped reply may leave open."""
    text = printable(text.replace("\r\n", "\n")).rstrip()
    fence = ""
    for mark, rest in _FENCE.findall(text):
        if not fence and not ("`" in mark and "`" in rest):
            fence = mark
        elif fence and mark.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
