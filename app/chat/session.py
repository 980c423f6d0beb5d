"""All open chats, and what the user does to them.

No screen is drawn here. One thread calls everything and gets all events; nothing here waits for the engine. What the
user does is on disk before it is seen in memory, and before the engine sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from app.chat.answering.engine_host import EngineEvent, EngineHost, OpenEngine, Post, Ticket
from app.chat.answering.prompting import summary_request
from app.chat.answering.replies import Replies
from app.chat.answering.thinking import parts
from app.chat.conversation import Conversation, Message, MessageState
from app.chat.events import EngineReady, MessageAdded, Noticed, SessionEvent, TitleChanged
from app.chat.open_chat import DRAFT, OpenChat
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from app.chat.wording.titles import given_title, provisional_title
from engine.client import EngineClient
from engine.config import EngineConfig, EngineKind, KvType
from engine.errors import OctavoError
from engine.messages import Failed, Finished, Role, TextEvent
from models.folders import cache_folder
from models.locate import locate


class MessageDeletion(NamedTuple):
    """Messages that were deleted together. id: the store's."""

    chat_id: int
    id: int
    n_messages: int


class Session:
    """Owns the engine host and the open chats; the store is shared with other instances of the app."""

    def __init__(
        self,
        store: ChatStore,
        defaults: ChatSettings,
        post: Post,
        on_event: Callable[[SessionEvent], None],
        open_engine: OpenEngine = EngineClient,
    ) -> None:
        self.store = store
        self.defaults = defaults
        self.host = EngineHost(post, self._on_engine, open_engine)
        self._tell = on_event
        self._open: dict[int, OpenChat] = {}
        self._replies = Replies(store, self.host, self.prepare, self._open, on_event)

    # --- chats ---

    def new_chat(self) -> OpenChat:
        """An empty chat with the default settings, which is stored with its first message."""
        return OpenChat(Conversation(DRAFT), self.defaults)

    def open_chat(self, chat_id: int) -> OpenChat:
        """A stored chat; the same object as long as a reply streams into it. Raises StoreError."""
        chat = self._open.get(chat_id)
        if chat is None:
            summary = self.store.summary(chat_id)
            chat = OpenChat(self.store.load(chat_id), summary.settings, summary.title, summary.named)
            self._open[chat_id] = chat
        return chat

    def close_chat(self, chat: OpenChat) -> None:
        """Nobody looks at it any more; a reply goes on."""
        if chat.reply is None:
            self._open.pop(chat.chat_id, None)

    def prepare(self, chat: OpenChat) -> None:
        """Load the model of a chat, while the user types. Raises ModelFileError or CatalogueError."""
        path, config = model_of(chat.settings)
        self.host.use(path, config)

    def change_settings(self, chat: OpenChat, settings: ChatSettings) -> None:
        """From the next reply on. Raises StoreError."""
        if not chat.is_draft:
            self.store.save_settings(chat.chat_id, settings)
        chat.settings = settings

    def rename(self, chat: OpenChat, title: str) -> None:
        """Give a chat a title of the user's. Raises StoreError."""
        title = given_title(title)
        if not chat.is_draft:
            self.store.rename(chat.chat_id, title, named=True)
        chat.title, chat.named = title, True
        self._tell(TitleChanged(chat.chat_id, title))

    def titles(self) -> dict[int, str]:
        """Titles of the chats that are open, by their ids."""
        return {chat.chat_id: chat.title for chat in self._open.values()}

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Give a stored chat a title of the user's, whether it is open or not. Raises StoreError."""
        if chat := self._open.get(chat_id):
            self.rename(chat, title)
        else:
            self.store.rename(chat_id, given_title(title), named=True)

    def delete_chat(self, chat_id: int) -> None:
        """Delete a stored chat, and end the reply to it; `store.restore_chat` brings it back. Raises StoreError."""
        if chat := self._open.get(chat_id):
            self.stop(chat)
        self.store.delete_chat(chat_id)
        self._open.pop(chat_id, None)

    def reveal(self, chat: OpenChat, message_id: int) -> None:
        """Show a branch that a message is on. Raises StoreError."""
        conversation = chat.conversation
        if message_id in conversation.messages and message_id not in (one.id for one in conversation.path()):
            self._show_leaf(chat, conversation.newest_leaf(message_id))

    # --- messages ---

    def send(self, chat: OpenChat, text: str) -> None:
        """Say something at the end of the path, and ask for a reply. Raises StoreError."""
        if chat.is_draft:
            chat.title = chat.title or provisional_title(text)
            summary = self.store.create_chat(chat.settings, chat.title, named=chat.named)
            chat.conversation.chat_id = summary.id
            self._open[chat.chat_id] = chat
            self._tell(TitleChanged(chat.chat_id, chat.title))
        self._reply_to(chat, self._add(chat, chat.conversation.leaf, Role.USER, text))

    def edit(self, chat: OpenChat, message_id: int, text: str) -> None:
        """Put another version beside a message; one of the user's gets a reply. Raises StoreError."""
        old = chat.conversation.messages[message_id]
        message = self._add(chat, old.parent, old.role, text)
        if message.role is Role.USER:
            self._reply_to(chat, message)

    def regenerate(self, chat: OpenChat, message_id: int) -> None:
        """Put another reply beside this one; for a message of the user's, another reply to it. Raises StoreError."""
        message = chat.conversation.messages[message_id]
        if message.role is Role.ASSISTANT:
            assert message.parent is not None
            message = chat.conversation.messages[message.parent]
        self._reply_to(chat, message)

    def resume(self, chat: OpenChat, message_id: int) -> None:
        """Go on with a reply that was stopped, cut or interrupted. Raises StoreError."""
        self.stop(chat)
        self.store.update_message(message_id, state=MessageState.STREAMING)
        message = chat.conversation.revise(message_id, state=MessageState.STREAMING)
        self._tell(MessageAdded(chat.chat_id, message))
        self._replies.write(chat, message)

    def stop(self, chat: OpenChat) -> None:
        """Want no more of the reply that is being written: it ends at once with what it has."""
        self._replies.stop(chat)

    def switch(self, chat: OpenChat, message_id: int, offset: int) -> bool:
        """Show the branch of a neighbour of a message, -1 the one before, 1 the one after; False at either end.

        Raises StoreError.
        """
        neighbour = chat.conversation.neighbour(message_id, offset)
        if neighbour is None:
            return False
        self._show_leaf(chat, chat.conversation.newest_leaf(neighbour))
        return True

    def delete_messages(self, chat: OpenChat, message_id: int) -> MessageDeletion:
        """Delete a message and all that follow it; `undo_delete` brings them back. Raises StoreError."""
        if chat.reply is not None and chat.reply.message_id in chat.conversation.subtree(message_id):
            self.stop(chat)
        deletion = self.store.delete_messages(chat.chat_id, message_id)
        return MessageDeletion(chat.chat_id, deletion, len(chat.conversation.remove(message_id)))

    def undo_delete(self, chat: OpenChat, deletion: MessageDeletion) -> None:
        """Bring messages back, and show the path of then. Raises StoreError."""
        self.store.restore_messages(deletion.id)
        conversation = self.store.load(chat.chat_id)
        if chat.reply is not None and chat.reply.message_id not in conversation.messages:  # deleted in another window
            self.stop(chat)
        chat.conversation = conversation

    def start_at(self, chat: OpenChat, message_id: int | None) -> None:
        """Let the model read the chat from this message on; None is all of it. Raises StoreError."""
        self.store.set_start(chat.chat_id, message_id)
        chat.conversation.start = message_id

    def summarize(
        self, chat: OpenChat, start: int | None, to: int, deliver: Callable[[str | OctavoError], None]
    ) -> Ticket:
        """Ask for a summary of the path from the message `start` up to `to`, to begin another chat with."""
        conversation = chat.conversation.starting_at(start)
        request = summary_request(conversation, chat.settings, to, chat.chat_id)

        def on_event(event: TextEvent) -> None:
            if isinstance(event, Finished):
                deliver(parts(event.text).answer)
            elif isinstance(event, Failed):
                deliver(event.error)

        return self.host.submit(request, on_event)

    def close(self) -> None:
        """End all engines; replies keep what they have."""
        for chat in list(self._open.values()):
            self.stop(chat)
        self._replies.save_rest()
        self.host.close()

    def _show_leaf(self, chat: OpenChat, message_id: int) -> None:
        self.store.set_leaf(chat.chat_id, message_id)
        chat.conversation.leaf = message_id

    def _add(self, chat: OpenChat, parent: int | None, role: Role, text: str) -> Message:
        state = MessageState.STREAMING if role is Role.ASSISTANT and not text else MessageState.COMPLETE
        message = self.store.add_message(chat.chat_id, parent, role, text, state)
        self._replies.save_rest()
        chat.conversation.put(message)
        chat.conversation.leaf = message.id
        self._tell(MessageAdded(chat.chat_id, message))
        return message

    def _reply_to(self, chat: OpenChat, message: Message) -> None:
        self.stop(chat)
        self._replies.write(chat, self._add(chat, message.id, Role.ASSISTANT, ""))

    def _on_engine(self, event: EngineEvent) -> None:
        if isinstance(event, EngineReady) and event.loaded.notice:
            self._tell(Noticed(None, event.loaded.notice))
        self._tell(event)


def model_of(settings: ChatSettings) -> tuple[Path, EngineConfig]:
    """The model file of a chat, and how to run it. Raises ModelFileError or CatalogueError."""
    config = EngineConfig(
        kind=EngineKind(settings.engine) if settings.engine else None,
        context=settings.context,
        threads=settings.threads,
        device=settings.device,
        kv_type=KvType(settings.kv_type),
        tuning_file=str(cache_folder() / "tuning.json"),
    )
    return locate(settings.model), config
