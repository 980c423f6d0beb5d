"""What can be done when a chat has filled its window, or nearly: found out in the background, done when chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from app.chat.answering.engine_host import Ticket
from app.chat.answering.making_room import Start, find_start, larger_context, later_starts, left_out
from app.chat.answering.prompting import SUMMARY_TOKENS, history, reply_request, summary_request
from app.chat.conversation import Message, MessageState
from app.chat.open_chat import OpenChat
from app.chat.session import Session
from engine.errors import OctavoError
from engine.memory import available_memory
from engine.messages import Role, TextRequest
from engine.sequence import KvStats

_OPEN_ENDS = (MessageState.FAILED, MessageState.CUT, MessageState.STOPPED, MessageState.INTERRUPTED)


@dataclass(frozen=True)
class DropOldest:
    """Let the model read from a later message on. dropped: what it then reads no more."""

    start: Start
    dropped: tuple[Message, ...]


@dataclass(frozen=True)
class SummarizedChat:
    """Go on in another chat with a summary, made from the message `start` on."""

    start: int


@dataclass(frozen=True)
class LargerWindow:
    """Load the model again with a window of so many tokens. n_bytes: what its KV memory takes when it is full."""

    context: int
    n_bytes: int


Remedy = DropOldest | SummarizedChat | LargerWindow


class WindowEdge:
    """The remedies for one chat at one moment. remedies: as far as they are known; is_looking: whether more may come.

    on_change is called whenever one of them has changed.
    """

    def __init__(
        self,
        session: Session,
        chat: OpenChat,
        context: int,
        needed: int,
        kv: KvStats | None,
        on_change: Callable[[], None],
    ) -> None:
        """needed: tokens that the prompt has, as far as it is known."""
        self.remedies: list[Remedy] = []
        self.problem = ""
        self.chat = chat
        self.context = context
        self._session = session
        self._on_change = on_change
        self._ticket: Ticket | None = None
        self._n_searches = 0
        leaf = chat.conversation.messages[chat.conversation.leaf or 0]
        self._unfinished = leaf if leaf.role is Role.ASSISTANT and leaf.state in _OPEN_ENDS else None
        self._to = (leaf.parent or leaf.id) if self._unfinished else leaf.id
        self._find_drop()
        self._find_summary()
        self._find_larger(needed, kv)

    @property
    def is_looking(self) -> bool:
        """Whether tokens are being counted."""
        return self._n_searches > 0

    def apply(self, remedy: DropOldest | LargerWindow) -> None:
        """Do it, and go on with the reply that did not fit. Raises OctavoError."""
        if isinstance(remedy, DropOldest):
            self._session.start_at(self.chat, remedy.start.message_id)
        else:
            self._session.change_settings(self.chat, replace(self.chat.settings, context=remedy.context))
        if self._unfinished is not None:
            self._session.resume(self.chat, self._unfinished.id)
        else:
            self._session.prepare(self.chat)

    def summarize(self, remedy: SummarizedChat, deliver: Callable[[str | OctavoError], None]) -> None:
        """Ask for the message that begins the other chat: the summary, and what was asked for last."""

        def take(summary: str | OctavoError) -> None:
            if self._ticket is not None:
                self._ticket = None
                deliver(summary if isinstance(summary, OctavoError) else self._first_message(summary))

        self._ticket = self._session.summarize(self.chat, remedy.start, self._summarized_to, take)

    def cancel(self) -> None:
        """Want no summary any more."""
        if self._ticket is not None:
            ticket, self._ticket = self._ticket, None
            ticket.cancel()

    @property
    def _summarized_to(self) -> int:
        """The last message that a summary is about: what the user asked last goes into the new chat as it is."""
        last = self.chat.conversation.messages[self._to]
        return last.parent or last.id if last.role is Role.USER else last.id

    def _first_message(self, summary: str) -> str:
        last = self.chat.conversation.messages[self._to]
        question = last.text if last.role is Role.USER else "Let us go on from here."
        return f"Summary of our conversation so far:\n\n{summary.strip()}\n\n{question}"

    def _find_drop(self) -> None:
        chat, continued = self.chat, self._unfinished.text if self._unfinished else ""

        def request_from(start: int) -> TextRequest:
            return reply_request(chat.conversation.starting_at(start), chat.settings, self._to, chat.chat_id, continued)

        def take(start: Start) -> None:
            self.remedies.append(DropOldest(start, tuple(left_out(chat.conversation, self._to, start.message_id))))

        starts = later_starts(chat.conversation, self._to)
        self._search(request_from, starts, self.context * 3 // 4, self.context - 1, take)

    def _find_summary(self) -> None:
        chat, to = self.chat, self._summarized_to
        if to == self._to and chat.conversation.messages[to].role is Role.USER:
            return  # nothing was said before

        def request_from(start: int) -> TextRequest:
            return summary_request(chat.conversation.starting_at(start), chat.settings, to, chat.chat_id)

        def take(start: Start) -> None:
            self.remedies.append(SummarizedChat(start.message_id))

        starts = [message.id for message in history(chat.conversation, to)[:1]] + later_starts(chat.conversation, to)
        most = self.context - min(SUMMARY_TOKENS, self.context // 4)
        self._search(request_from, starts, most, most, take)

    def _search(
        self,
        request_from: Callable[[int], TextRequest],
        starts: list[int],
        limit: int,
        most: int,
        take: Callable[[Start], None],
    ) -> None:
        def deliver(start: Start | OctavoError | None) -> None:
            self._n_searches -= 1
            if isinstance(start, OctavoError):
                self.problem = str(start)
            elif start is not None:
                take(start)
            self._on_change()

        if starts:
            self._n_searches += 1
            find_start(self._session.host.count_tokens, request_from, starts, limit, most, deliver)

    def _find_larger(self, needed: int, kv: KvStats | None) -> None:
        token_bytes = kv.bytes_contiguous_would_reserve // self.context if kv else 0
        if context := larger_context(self.context, needed, token_bytes, available_memory()):
            self.remedies.append(LargerWindow(context, context * token_bytes))
