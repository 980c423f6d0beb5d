"""The replies that stream into chats, also where nobody looks, and the titles that the model finds for chats.

A reply is on disk at every paragraph, and when it ends. What cannot be written, because the disk is full or another
program has the file locked, stays in memory and is tried again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from app.chat.answering.engine_host import EngineHost, Ticket
from app.chat.answering.prompting import reply_request, title_request
from app.chat.answering.reply import Reply
from app.chat.conversation import Message, MessageState, ReplyFigures
from app.chat.errors import StoreError
from app.chat.events import Noticed, PromptProgress, ReplyEnded, ReplyText, SessionEvent, TitleChanged
from app.chat.open_chat import OpenChat
from app.chat.storage.store import ChatStore
from app.chat.wording.titles import can_be_found, found_title
from engine.errors import OctavoError
from engine.messages import Failed, Finished, Notice, Role, TextDelta, TextEvent
from engine.sequence import PrefillEvent


class Replies:
    """Asks the engine for replies, and takes what it says to memory, disk and screens."""

    def __init__(
        self,
        store: ChatStore,
        host: EngineHost,
        prepare: Callable[[OpenChat], None],
        open_chats: dict[int, OpenChat],
        tell: Callable[[SessionEvent], None],
    ) -> None:
        """prepare: puts the model of a chat in use. open_chats: of the session, by id, at any moment."""
        self._store = store
        self._host = host
        self._prepare = prepare
        self._open = open_chats
        self._tell = tell
        self._unsaved: dict[int, dict[str, Any]] = {}
        """Changes of messages, by their ids, that could not be written to disk."""

    def write(self, chat: OpenChat, message: Message) -> None:
        """Let the engine write a reply, or the rest of it, into a message."""
        reply = chat.reply = Reply(chat.chat_id, message.id, model="", text=message.text, n_saved=len(message.text))
        assert message.parent is not None
        try:
            self._prepare(chat)
            request = reply_request(chat.conversation, chat.settings, message.parent, chat.chat_id, message.text)
        except OctavoError as error:
            self._end(chat, reply, MessageState.FAILED, error=error)
            return
        reply.model = self._host.path.stem if self._host.path else ""
        chat.ticket = self._host.submit(request, lambda event: self._take(chat, reply, event))

    def stop(self, chat: OpenChat) -> None:
        """Want no more of the reply that is being written: it ends at once with what it has."""
        if chat.reply is not None and chat.ticket is not None:
            chat.reply.is_stopped = True
            chat.ticket.cancel()
            self._end(chat, chat.reply, MessageState.STOPPED)

    def save_rest(self) -> None:
        """Write what could not be written before."""
        for message_id, changes in list(self._unsaved.items()):
            with contextlib.suppress(StoreError):  # which has been told, and may be over at the next try
                self._store.update_message(message_id, **changes)
                del self._unsaved[message_id]

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
            self._store.update_message(reply.message_id, text=reply.text)
            reply.n_saved = len(reply.text)
        except StoreError as error:
            reply.put_off_saving()
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
        ticket, chat.reply, chat.ticket = chat.ticket, None, None
        self._revise(chat, reply, error=error, text=reply.text, state=state, figures=figures)
        if state in (MessageState.COMPLETE, MessageState.CUT) and not chat.named:
            self._ask_title(chat, reply.message_id, ticket)

    def _revise(self, chat: OpenChat, reply: Reply, *, error: OctavoError | None = None, **changes: Any) -> None:
        """Change the message of a reply in memory, on disk and on the screen."""
        message = chat.conversation.revise(reply.message_id, **changes)
        unsaved = self._unsaved.pop(message.id, {}) | changes
        try:
            self._store.update_message(message.id, **unsaved)
        except StoreError as problem:
            self._unsaved[message.id] = unsaved
            self._tell(Noticed(reply.chat_id, str(problem)))
        else:
            self.save_rest()
        self._tell(ReplyEnded(reply.chat_id, message, error))

    def _ask_title(self, chat: OpenChat, message_id: int, ticket: Ticket | None) -> None:
        """Let the model find a title, in the background, once there is something to go by.

        ticket: of the reply, whose engine has the chat in its cache, also when another one is in use by now.
        """
        path = chat.conversation.path(message_id)
        if not can_be_found(" ".join(message.text for message in path if message.role is Role.USER)):
            return
        chat.named = True
        request = title_request(chat.conversation, chat.settings, message_id, chat.chat_id)

        def on_event(event: TextEvent) -> None:
            title = found_title(event.text) if isinstance(event, Finished) else ""
            if not title:
                return
            with contextlib.suppress(StoreError):  # the provisional title does as well
                if self._store.suggest_title(chat.chat_id, title):
                    for known in (chat, self._open.get(chat.chat_id)):  # opened again meanwhile
                        if known is not None:
                            known.title, known.named = title, True
                    self._tell(TitleChanged(chat.chat_id, title))

        self._host.submit(request, on_event, ticket)
