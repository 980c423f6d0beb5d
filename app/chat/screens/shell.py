"""The chats around the one that is shown: their list, the search, and the first chat of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.binding import Binding

from app.chat.beginning import Beginning
from app.chat.choosing.first_run import FirstModel, first_models
from app.chat.events import MessageAdded, Noticed, SessionEvent, TitleChanged
from app.chat.open_chat import OpenChat
from app.chat.screens.monitor import Monitor
from app.chat.screens.search import SearchScreen
from app.chat.screens.welcome import WelcomeScreen
from app.chat.session import Session
from app.chat.storage.search import SearchHit
from app.chat.widgets.sidebar import Sidebar
from app.chat.widgets.status_bar import StatusBar
from app.chat.wording.attention import Attention

if TYPE_CHECKING:
    from app.chat.app import ChatApp

_TICK_S = 1
"""Between two looks at what other instances have stored."""
_WIDE = 100
"""Columns from which on the sidebar has a place of its own."""
_BROAD = 132
"""Columns from which on the KV pool has one too."""


class Shell(Monitor):
    """The base of the screen that shows a chat; it composes Sidebar too."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide"), (_BROAD, "-broad")]  # noqa: RUF012 - Textual declares it so
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+b", "sidebar", "Chats", priority=True, id="sidebar"),
        Binding("ctrl+f", "search", "Search", priority=True, id="search"),
        Binding("alt+up,ctrl+pageup", "neighbour(-1)", "Previous chat", show=False, priority=True, id="previous_chat"),
        Binding("alt+down,ctrl+pagedown", "neighbour(1)", "Next chat", show=False, priority=True, id="next_chat"),
    ]

    def __init__(self, session: Session, beginning: Beginning) -> None:
        super().__init__(session)
        self._beginning = beginning
        self.attention = Attention()
        self._sidebar_wanted: bool | None = None

    def focus_chat(self) -> None:
        """Put the cursor where the user writes."""
        raise NotImplementedError

    # --- what happens ---

    async def begin(self) -> None:
        """Show the first chat, or help with the choice of a model; look from now on at what changes by itself."""
        self.begin_watching()
        self._place_sidebar()
        self.set_interval(_TICK_S, self._look_elsewhere)
        self.focus_chat()
        if self._beginning.welcome:
            self.app.push_screen(WelcomeScreen(first_models, self._post), self._after_welcome)
            return
        chat = self.chat
        with self.telling():
            chat = self._first_chat()
        await self.show_chat(chat)

    def _first_chat(self) -> OpenChat:
        """The one that was asked for. Raises StoreError."""
        beginning = self._beginning
        chat = self.session.open_chat(beginning.chat_id) if beginning.chat_id is not None else self.chat
        if beginning.model is not None:
            self.session.change_settings(chat, replace(chat.settings, model=beginning.model))
        return chat

    async def _after_welcome(self, choice: FirstModel | None) -> None:
        """Begin with the chosen model, which is the default from now on."""
        app: ChatApp = self.app  # type: ignore[assignment]
        with self.telling():
            if choice is not None:
                app.change_settings(replace(app.settings, chat=replace(app.settings.chat, model=choice.model)))
        chat = self.session.new_chat()
        if choice is not None:
            chat.settings = replace(chat.settings, model=choice.model)  # also where it could not be remembered
        await self.show_chat(chat)

    def _post(self, work: Callable[[], None]) -> None:
        self.app.call_later(work)  # any thread may do this

    def chat_shown(self) -> None:
        """Another chat is on the screen."""
        self.attention.see(self.chat.chat_id)
        self.engine_wanted()
        self._show_attention()

    def follow(self, event: SessionEvent) -> None:
        """Show what an event means for the surroundings of the chat."""
        is_news = self.attention.take(event, self.chat.chat_id)
        self.follow_engine(event)
        match event:
            case Noticed(_, text):
                self.notify(text, markup=False)
            case TitleChanged() | MessageAdded():
                self.query_one(Sidebar).reload(self.chat.chat_id)
        if is_news:
            self._show_attention()

    def _show_attention(self) -> None:
        self.query_one(Sidebar).redraw(self.chat.chat_id)
        elsewhere, unread = self.attention.elsewhere(self.chat.chat_id), len(self.attention.unread)
        self.query_one(StatusBar).change(elsewhere=elsewhere, unread=unread)

    def _look_elsewhere(self) -> None:
        with self.telling():
            if self.session.store.changed():
                self.query_one(Sidebar).reload(self.chat.chat_id)

    # --- what the user does ---

    def on_resize(self) -> None:
        """A wide terminal has room for the sidebar, unless the user wants something else."""
        self._place_sidebar()

    def _place_sidebar(self) -> None:
        sidebar = self.query_one(Sidebar)
        sidebar.display = self.size.width >= _WIDE if self._sidebar_wanted is None else self._sidebar_wanted
        if sidebar.display:
            sidebar.catch_up()

    def action_sidebar(self) -> None:
        """Go to the list of chats, and show it; from there, hide it."""
        sidebar = self.query_one(Sidebar)
        self._sidebar_wanted = not (sidebar.display and sidebar.has_focus_within)
        self._place_sidebar()
        if self._sidebar_wanted:
            sidebar.focus_list()
        else:
            self.focus_chat()

    @on(Sidebar.Left)
    def _leave_sidebar(self) -> None:
        if self.size.width < _WIDE:
            self._sidebar_wanted = None
            self._place_sidebar()
        self.focus_chat()

    @on(Sidebar.Opened)
    async def _open_listed(self, event: Sidebar.Opened) -> None:
        await self.open_chat(event.chat_id)
        self._leave_sidebar()

    @on(Sidebar.NewChat)
    async def _begin_chat(self) -> None:
        await self.show_chat(self.session.new_chat())
        self._leave_sidebar()

    @on(Sidebar.Deleted)
    async def _forget_chat(self, event: Sidebar.Deleted) -> None:
        if event.chat_id == self.chat.chat_id:
            await self.show_chat(self.session.new_chat())
        self._show_attention()

    async def action_neighbour(self, offset: int) -> None:
        """Show the chat before or after this one in the list of chats."""
        with self.telling():
            ids = [chat.id for chat in self.session.store.chats()]
            here = ids.index(self.chat.chat_id) if self.chat.chat_id in ids else -1
            if ids and 0 <= here + offset < len(ids):
                await self.open_chat(ids[here + offset])

    async def open_chat(self, chat_id: int, message_id: int | None = None) -> None:
        """Show a stored chat, on the branch of a message, and tell why if it cannot be had."""
        with self.telling():
            chat = self.chat if chat_id == self.chat.chat_id else self.session.open_chat(chat_id)
            if message_id is not None:
                self.session.reveal(chat, message_id)
            await self.show_chat(chat, message_id)

    def action_search(self, words: str = "") -> None:
        """Find words in all chats."""

        async def go(hit: SearchHit | None) -> None:
            if hit is not None:
                await self.open_chat(hit.chat_id, hit.message_id)

        self.app.push_screen(SearchScreen(self.session.store.search, words), go)
