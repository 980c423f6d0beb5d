"""A chat in memory, which the screens show and the session changes."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.answering.engine_host import Ticket
from app.chat.answering.reply import Reply
from app.chat.conversation import Conversation
from app.chat.preferences.settings import ChatSettings

DRAFT = 0
"""Id of a chat that is not stored yet, because nothing has been said in it."""


@dataclass
class OpenChat:
    """reply: the one that is being written, if any, and its request.

    named: whether the user has chosen the title, or the model has been asked for one.
    """

    conversation: Conversation
    settings: ChatSettings
    title: str = ""
    named: bool = False
    reply: Reply | None = None
    ticket: Ticket | None = None

    @property
    def chat_id(self) -> int:
        """Id in the store."""
        return self.conversation.chat_id

    @property
    def is_draft(self) -> bool:
        """Whether nothing has been said in it yet."""
        return self.chat_id == DRAFT
