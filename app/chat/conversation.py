"""A chat as a tree of messages: every edit and every regenerated reply is a branch, and nothing is overwritten.

Plain data. The one path that is shown, from a root to the `leaf`, is what the model gets to read.
"""

from __future__ import annotations

import bisect
import copy
import enum
from dataclasses import dataclass, field, replace
from datetime import datetime

from engine.messages import Role


class MessageState(enum.StrEnum):
    """How a message ended."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    """Still being written, by this instance of the app or by another."""
    STOPPED = "stopped"
    """By the user."""
    CUT = "cut"
    """At the longest answer that was asked for, or where the context was full."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The app ended while it was being written, as the store has noticed."""


@dataclass(frozen=True)
class ReplyFigures:
    """What a reply cost. Tokens: generated; prompt tokens reused from the cache and computed. Times in seconds.

    thought_s: time that passed until the thought ended, None if there was none.
    """

    model: str
    generated_tokens: int
    reused_tokens: int
    computed_tokens: int
    ttft_s: float
    decode_tok_s: float | None
    thought_s: float | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens of everything before the reply."""
        return self.reused_tokens + self.computed_tokens


@dataclass(frozen=True)
class Message:
    """One message of the tree. id: 1, 2, 3 … in the order of creation, unique in the store. parent: None for a root."""

    id: int
    parent: int | None
    role: Role
    text: str
    state: MessageState
    created: datetime
    figures: ReplyFigures | None = None


@dataclass
class Conversation:
    """The messages of a chat by id, and the one at the end of the path that is shown (None while there are none).

    start: the first message that the model still reads, where the user has dropped older ones; None: the first of all.
    Only `put`, `revise` and `remove` change `messages`. Owned by whoever shows it; the store (app/chat/storage/) is
    told of every change separately.
    """

    chat_id: int
    messages: dict[int, Message] = field(default_factory=dict, init=False)
    leaf: int | None = None
    start: int | None = None
    _children: dict[int | None, list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def path(self, to: int | None = None) -> list[Message]:
        """The messages from the root to `to`, or to the leaf."""
        path = []
        current = self.leaf if to is None else to
        while current is not None:
            message = self.messages[current]
            path.append(message)
            current = message.parent
        return path[::-1]

    def children(self, parent: int | None) -> list[int]:
        """Ids of the messages that follow `parent`, the oldest first; of the roots for None."""
        return self._children.get(parent, []).copy()

    def siblings(self, message_id: int) -> list[int]:
        """Ids of the message and of its alternatives, the oldest first."""
        return self.children(self.messages[message_id].parent)

    def newest_leaf(self, message_id: int) -> int:
        """The end of the path that follows the youngest child from here on."""
        while children := self.children(message_id):
            message_id = children[-1]
        return message_id

    def starting_at(self, message_id: int | None) -> Conversation:
        """The same messages, of which the model reads those from another one on. To look at, not to change."""
        other = copy.copy(self)
        other.start = message_id
        return other

    def neighbour(self, message_id: int, offset: int) -> int | None:
        """The alternative so many places after a message, or before it where `offset` is negative; None at an end."""
        siblings = self.siblings(message_id)
        index = siblings.index(message_id) + offset
        return siblings[index] if 0 <= index < len(siblings) else None

    def put(self, message: Message) -> None:
        """Add a message, or replace the one of the same id, which has the same parent."""
        if message.id not in self.messages:
            bisect.insort(self._children.setdefault(message.parent, []), message.id)
        self.messages[message.id] = message

    def revise(self, message_id: int, **changes: object) -> Message:
        """Change fields of a message; returns it as it is now."""
        message = replace(self.messages[message_id], **changes)  # type: ignore[arg-type]
        self.put(message)
        return message

    def subtree(self, message_id: int) -> list[int]:
        """Ids of a message and of all that follow it."""
        ids, pending = [], [message_id]
        while pending:
            current = pending.pop()
            ids.append(current)
            pending += self.children(current)
        return ids

    def remove(self, message_id: int) -> list[int]:
        """Take a message and all that follow it out; returns their ids. The path ends at its parent, or elsewhere.

        Where the parent has other children, the path goes on along the youngest of them.
        """
        parent = self.messages[message_id].parent
        removed = self.subtree(message_id)
        self._children[parent].remove(message_id)
        for gone in removed:
            del self.messages[gone]
            self._children.pop(gone, None)
        if self.leaf in removed:
            roots = self.children(None)
            start = parent if parent is not None else roots[-1] if roots else None
            self.leaf = None if start is None else self.newest_leaf(start)
        if self.start in removed:
            self.start = None
        return removed
