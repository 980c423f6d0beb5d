"""The path of a chat, message below message, following the end while a reply streams."""

from __future__ import annotations

from textual.containers import VerticalScroll

from app.chat.conversation import Conversation, Message
from app.chat.widgets.message_view import MessageView


class Transcript(VerticalScroll):
    """Shows one conversation at a time."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._conversation: Conversation | None = None

    async def show(self, conversation: Conversation) -> None:
        """Show a conversation from its root to its leaf."""
        self._conversation = conversation
        await self.remove_children()
        await self.mount_all(self._view(message) for message in conversation.path())
        self.anchor()

    async def add(self, message: Message) -> None:
        """The path ends with this message now; what does not lead to it is no longer shown."""
        assert self._conversation is not None
        path = [one.id for one in self._conversation.path()]
        for view in self.query(MessageView):
            if view.message.id not in path or view.message.id == message.id:
                await view.remove()
        await self.mount(self._view(message))
        for view in self.query(MessageView):
            view.set_place(self._place(view.message))
        self.anchor()

    def view_of(self, message_id: int) -> MessageView | None:
        """The view of a message, if it is on the path that is shown."""
        return next((view for view in self.query(MessageView) if view.message.id == message_id), None)

    def _view(self, message: Message) -> MessageView:
        return MessageView(message, self._place(message))

    def _place(self, message: Message) -> tuple[int, int]:
        assert self._conversation is not None
        siblings = self._conversation.siblings(message.id)
        return siblings.index(message.id) + 1, len(siblings)
