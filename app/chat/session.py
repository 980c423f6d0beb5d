"""All open chats: what the user does to them, and the replies that stream into them, also where nobody looks.

No screen is drawn here. One thread calls everything and gets all events; nothing here waits for the engine. What the
user writes is on disk before the engine sees it, a reply at every paragraph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.chat.answering.engine_host import EngineEvent, EngineHost, OpenEngine, Post, Ticket
from app.chat.answering.prompting import clean_title, provisional_title, reply_request, summary_request, title_request
from app.chat.answering.reply import Reply
from app.chat.answering.thinking import parts
from app.chat.conversation import Conversation, Message, MessageState, ReplyFigures
from app.chat.errors import StoreError
from app.chat.events import (
    EngineReady,
    MessageAdded,
    Noticed,
    PromptProgress,
    ReplyEnded,
    ReplyText,
    SessionEvent,
    TitleChanged,
)
from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.client import EngineClient
from engine.config import EngineConfig, EngineKind, KvType
from engine.errors import OctavoError
from engine.messages import Failed, Finished, Notice, Role, TextDelta, TextEvent
from engine.sequence import PrefillEvent
from models.folders import cache_folder
from models.locate import locate

_DRAFT = 0
"""Id of a chat that is not stored yet, because nothing has been said in it."""


@dataclass
class OpenChat:
    """A chat in memory. reply: the one that is being written, if any. named: whether the user has chosen the title."""

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
        return self.chat_id == _DRAFT


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

    # --- chats ---

    def new_chat(self) -> OpenChat:
        """An empty chat with the default settings, which is stored with its first message."""
        return OpenChat(Conversation(_DRAFT), self.defaults)

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
        chat.settings = settings
        if not chat.is_draft:
            self.store.save_settings(chat.chat_id, settings)

    def rename(self, chat: OpenChat, title: str) -> None:
        """Give a chat a title of the user's. Raises StoreError."""
        chat.title, chat.named = title, True
        if not chat.is_draft:
            self.store.rename(chat.chat_id, title, named=True)
        self._tell(TitleChanged(chat.chat_id, title))

    def titles(self) -> dict[int, str]:
        """Titles of the chats that are open, by their ids."""
        return {chat.chat_id: chat.title for chat in self._open.values()}

    def rename_chat(self, chat_id: int, title: str) -> None:
        """Give a stored chat a title of the user's, whether it is open or not. Raises StoreError."""
        if chat := self._open.get(chat_id):
            self.rename(chat, title)
        else:
            self.store.rename(chat_id, title, named=True)

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
            leaf = conversation.newest_leaf(message_id)
            self.store.set_leaf(chat.chat_id, leaf)
            conversation.leaf = leaf

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
        self._write(chat, message)

    def stop(self, chat: OpenChat) -> None:
        """Want no more of the reply that is being written: it ends at once with what it has."""
        if chat.reply is not None and chat.ticket is not None:
            chat.reply.is_stopped = True
            chat.ticket.cancel()
            self._end(chat, chat.reply, MessageState.STOPPED)

    def switch(self, chat: OpenChat, message_id: int, offset: int) -> bool:
        """Show a neighbouring branch; False at either end. Raises StoreError."""
        if not chat.conversation.switch(message_id, offset):
            return False
        assert chat.conversation.leaf is not None
        self.store.set_leaf(chat.chat_id, chat.conversation.leaf)
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
        chat.conversation = self.store.load(chat.chat_id)

    def start_at(self, chat: OpenChat, message_id: int | None) -> None:
        """Let the model read the chat from this message on; None is all of it. Raises StoreError."""
        chat.conversation.start = message_id
        self.store.set_start(chat.chat_id, message_id)

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
        self.host.close()

    # --- replies ---

    def _add(self, chat: OpenChat, parent: int | None, role: Role, text: str) -> Message:
        state = MessageState.STREAMING if role is Role.ASSISTANT and not text else MessageState.COMPLETE
        message = self.store.add_message(chat.chat_id, parent, role, text, state)
        chat.conversation.put(message)
        chat.conversation.leaf = message.id
        self._tell(MessageAdded(chat.chat_id, message))
        return message

    def _reply_to(self, chat: OpenChat, message: Message) -> None:
        self.stop(chat)
        self._write(chat, self._add(chat, message.id, Role.ASSISTANT, ""))

    def _write(self, chat: OpenChat, message: Message) -> None:
        """Let the engine write a reply, or the rest of it, into a message."""
        reply = chat.reply = Reply(chat.chat_id, message.id, model="", text=message.text, n_saved=len(message.text))
        assert message.parent is not None
        try:
            self.prepare(chat)
            request = reply_request(chat.conversation, chat.settings, message.parent, chat.chat_id, message.text)
        except OctavoError as error:
            self._end(chat, reply, MessageState.FAILED, error=error)
            return
        reply.model = self.host.path.stem if self.host.path else ""
        chat.ticket = self.host.submit(request, lambda event: self._take(chat, reply, event))

    def _take(self, chat: OpenChat, reply: Reply, event: TextEvent) -> None:
        """Pass an event of a reply on. After the user has stopped it, all that is of interest is what it cost."""
        if reply.is_stopped:
            if isinstance(event, Finished) and reply.message_id in chat.conversation.messages:
                self._revise(chat, reply, figures=reply.figures(event))
            return
        match event:
            case PrefillEvent(_, done, total, reused):
                self._tell(PromptProgress(reply.chat_id, reply.message_id, done, total, reused))
            case TextDelta(_, _, text):
                if reply.add(text):
                    self._save(reply)
                self._tell(ReplyText(reply.chat_id, reply.message_id, text))
            case Notice(_, text):
                self._tell(Noticed(reply.chat_id, text))
            case Finished():
                self._end(chat, reply, Reply.state(event), figures=reply.figures(event))
            case Failed(_, error):
                self._end(chat, reply, MessageState.FAILED, error=error)

    def _save(self, reply: Reply) -> None:
        """Write what there is of a reply to disk; if that fails it is still on the screen, and tried again."""
        try:
            self.store.update_message(reply.message_id, text=reply.text)
            reply.n_saved = len(reply.text)
        except StoreError as error:
            self._tell(Noticed(reply.chat_id, str(error)))

    def _end(
        self,
        chat: OpenChat,
        reply: Reply,
        state: MessageState,
        *,
        figures: ReplyFigures | None = None,
        error: OctavoError | None = None,
    ) -> None:
        chat.reply = chat.ticket = None
        self._revise(chat, reply, error=error, text=reply.text, state=state, figures=figures)
        if state in (MessageState.COMPLETE, MessageState.CUT) and not chat.named:
            self._ask_title(chat, reply.message_id)

    def _revise(self, chat: OpenChat, reply: Reply, *, error: OctavoError | None = None, **changes: Any) -> None:
        """Change the message of a reply in memory, on disk and on the screen."""
        message = chat.conversation.revise(reply.message_id, **changes)
        try:
            self.store.update_message(message.id, **changes)
        except StoreError as problem:
            self._tell(Noticed(reply.chat_id, str(problem)))
        self._tell(ReplyEnded(reply.chat_id, message, error))

    def _ask_title(self, chat: OpenChat, message_id: int) -> None:
        """Let the model find a title, in the background, once there is something to go by."""
        chat.named = True
        request = title_request(chat.conversation, chat.settings, message_id, chat.chat_id)
        before = chat.title

        def on_event(event: TextEvent) -> None:
            title = clean_title(parts(event.text).answer) if isinstance(event, Finished) else ""
            if title and chat.title == before:
                chat.title = title
                try:
                    self.store.rename(chat.chat_id, title, named=True)
                except StoreError:
                    return  # the provisional title does as well
                self._tell(TitleChanged(chat.chat_id, title))

        self.host.submit(request, on_event)

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
