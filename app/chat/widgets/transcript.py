"""The path of a chat, message below message."""

from __future__ import annotations

import itertools

from textual import on
from textual.binding import Binding
from textual.events import DescendantBlur, DescendantFocus
from textual.message import Message as Posted

from app.chat.answering.reply import Reply
from app.chat.conversation import Message
from app.chat.open_chat import OpenChat
from app.chat.widgets.folds import Fold
from app.chat.widgets.lazy_scroll import LazyScroll
from app.chat.widgets.message_view import MessageView
from app.chat.wording.message_texts import MessagePlace

LEAVE_KEY = "transcript_leave"


class Transcript(LazyScroll, can_focus=False, inherit_bindings=False):
    """Shows one chat at a time. has_news: there is new text below the window."""

    BINDING_GROUP_TITLE = "Among messages"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("up,k", "move(-1)", "Message before", show=False, id="transcript_before"),
        Binding("down,j", "move(1)", "Message after", show=False, id="transcript_after"),
        Binding("pageup", "page_up", "Page up", show=False, id="transcript_page_up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="transcript_page_down"),
        Binding("home", "first", "First message", show=False, id="transcript_first"),
        Binding("end", "last", "Last message", show=False, id="transcript_last"),
        Binding("escape", "leave", "Back to writing", show=False, id=LEAVE_KEY),
    ]

    class Left(Posted):
        """The user wants to write again."""

    class Noted(Posted):
        """Another message has the focus, or `has_news` has changed."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._chat: OpenChat | None = None
        self.has_news = False

    # --- the chat ---

    async def show(self, chat: OpenChat) -> None:
        """Show a chat, at its end."""
        self._chat = chat
        with self.app.batch_update():
            await self.query_children(MessageView).remove()
            await self.sync()
        self.follow()

    async def sync(self) -> None:
        """Show the path of the chat as it is now; messages that were and are on it stay.

        The focus goes to the message that takes the place of the one that had it, or to the last one.
        """
        assert self._chat is not None
        path = self._chat.conversation.path()
        views = self._views
        kept = list(itertools.takewhile(lambda pair: pair[0].id == pair[1].message.id, zip(path, views, strict=False)))
        for message, view in kept:
            view.set_place(self._place(message))
        with self.app.batch_update():
            new = [self._view(message) for message in path[len(kept) :]]
            await self.mount_all(new, after=len(kept) - 1 if kept else None)
            focused = next((number for number, view in enumerate(views) if view.has_focus), None)
            for view in views[len(kept) :]:
                await view.remove()
            if focused is not None and focused >= len(kept):
                self.focus_at(focused)

    async def add(self, message: Message) -> None:
        """The path ends with this message now; or it is there already, and goes on."""
        if view := self.view_of(message.id):
            await view.revise(message, self._reply(message))
        await self.sync()
        self.follow()

    async def end(self, message: Message, error: str) -> None:
        """A reply has ended. error: why it failed."""
        if view := self.view_of(message.id):
            await view.revise(message, error=error)

    def view_of(self, message_id: int) -> MessageView | None:
        """The view of a message, if it is on the path that is shown."""
        return next((view for view in self._views if view.message.id == message_id), None)

    def grow(self, message_id: int) -> None:
        """The reply that is being written has got longer."""
        view, reply = self.view_of(message_id), self._chat.reply if self._chat else None
        if view is not None and reply is not None and reply.message_id == message_id:
            view.grow(reply.text)
            self._set_news(not self.follows)

    @property
    def _views(self) -> list[MessageView]:
        return [child for child in self.children if isinstance(child, MessageView)]

    def _view(self, message: Message) -> MessageView:
        return MessageView(message, self._place(message), self.changing, self._reply(message))

    def _reply(self, message: Message) -> Reply | None:
        reply = self._chat.reply if self._chat else None
        return reply if reply is not None and reply.message_id == message.id else None

    def _place(self, message: Message) -> MessagePlace:
        assert self._chat is not None
        siblings = self._chat.conversation.siblings(message.id)
        return MessagePlace(
            siblings.index(message.id) + 1, len(siblings), is_last=message.id == self._chat.conversation.leaf
        )

    # --- moving ---

    def follow(self) -> None:
        """Go to the end, and stay there while text is added."""
        super().follow()
        self._set_news(False)

    def followed(self) -> None:
        """There is nothing new below the end."""
        if self.follows:
            self._set_news(False)

    def enter(self) -> None:
        """Put the focus on the last message."""
        self.focus_at(-1)

    def focus_at(self, index: int) -> None:
        """Put the focus on a message by its number, or on the last one; if there is none, the user writes."""
        if views := self._views:
            self._focus(views[index if index < len(views) else -1])
        else:
            self.action_leave()

    def go_to(self, message_id: int) -> None:
        """Put the focus on a message of the path, and show its beginning."""
        if view := self.view_of(message_id):
            view.focus(scroll_visible=False)
            if place := self.place(view):
                self.jump(place.top)
            else:
                self.begin_with(view)

    def action_move(self, offset: int) -> None:
        """Focus the message before or after; after the last one, the user writes again."""
        views = self._views
        index = next((index for index, view in enumerate(views) if view.has_focus), len(views)) + offset
        if index >= len(views):
            self.action_leave()
        elif views:
            self._focus(views[max(index, 0)])

    def action_first(self) -> None:
        """Focus the first message, and show its beginning."""
        if views := self._views:
            views[0].focus(scroll_visible=False)
            self.jump(0)

    def action_last(self) -> None:
        """Focus the last message, and follow its end."""
        if views := self._views:
            views[-1].focus(scroll_visible=False)
        self.follow()

    def action_page_up(self) -> None:
        """Up by a window, but for a line."""
        self.jump(self.scroll_y - max(self.size.height - 1, 1))

    def action_page_down(self) -> None:
        """Down by a window, but for a line."""
        self.jump(self.scroll_y + max(self.size.height - 1, 1))

    def action_leave(self) -> None:
        """Write again."""
        self.post_message(self.Left())

    def _focus(self, view: MessageView) -> None:
        """Focus a message and show all of it, or its beginning."""
        view.focus(scroll_visible=False)
        place = self.place(view)
        if place is not None:
            edges = sorted((place.top, place.bottom - self.size.height))
            self.jump(min(max(round(self.scroll_y), edges[0]), edges[1]))

    def _set_news(self, has_news: bool) -> None:
        if has_news != self.has_news:
            self.has_news = has_news
            self.post_message(self.Noted())

    @on(DescendantFocus)
    @on(DescendantBlur)
    def _note_focus(self) -> None:
        self.post_message(self.Noted())

    @on(Fold.Asked)
    async def _toggle(self, event: Fold.Asked) -> None:
        event.stop()
        place = self.place(event.fold)
        if place is not None and not 0 <= place.top - self.scroll_y < self.size.height:
            self.jump(place.top)
        self.hold(event.fold)
        async with self.changing:
            await event.fold.toggle()
