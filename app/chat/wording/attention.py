"""Which chats want the user to look: those that are being answered, and those with an answer that nobody has seen."""

from __future__ import annotations

from app.chat.conversation import MessageState
from app.chat.events import MessageAdded, ReplyEnded, SessionEvent


class Attention:
    """Learns from the events of a session. replying, unread: ids of chats."""

    def __init__(self) -> None:
        self.replying: set[int] = set()
        self.unread: set[int] = set()

    def take(self, event: SessionEvent, shown: int) -> bool:
        """Note what an event means while the chat `shown` is on the screen; whether anything is different now."""
        before = (self.replying.copy(), self.unread.copy())
        match event:
            case MessageAdded(chat_id, message) if message.state is MessageState.STREAMING:
                self.replying.add(chat_id)
            case ReplyEnded(chat_id) if chat_id in self.replying:
                self.replying.discard(chat_id)
                if chat_id != shown:
                    self.unread.add(chat_id)
        return before != (self.replying, self.unread)

    def see(self, chat_id: int) -> None:
        """The user looks at a chat."""
        self.unread.discard(chat_id)

    def forget(self, chat_id: int) -> None:
        """A chat is gone."""
        self.replying.discard(chat_id)
        self.unread.discard(chat_id)

    def elsewhere(self, shown: int) -> int:
        """How many chats other than the one on the screen are being answered."""
        return len(self.replying - {shown})
