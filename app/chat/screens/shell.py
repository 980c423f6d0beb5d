"""What is around a chat: the other chats, the search, the status, the KV pool, and help where a reply cannot go on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import on
from textual.binding import Binding
from textual.screen import Screen

from app.chat.answering.making_room import is_at_edge
from app.chat.answering.window_edge import LargerWindow
from app.chat.beginning import Beginning
from app.chat.choosing.first_run import Choice, choices
from app.chat.conversation import Message, MessageState
from app.chat.events import (
    EngineFailed,
    EngineLoading,
    EngineReady,
    MessageAdded,
    Noticed,
    PromptProgress,
    ReplyEnded,
    SessionEvent,
    TitleChanged,
)
from app.chat.screens.search import SearchScreen
from app.chat.screens.welcome import WelcomeScreen
from app.chat.screens.window_edge import EdgeScreen, Outcome, Summarized
from app.chat.session import OpenChat, Session
from app.chat.storage.search import SearchHit
from app.chat.widgets.pool_panel import PoolPanel
from app.chat.widgets.sidebar import Sidebar
from app.chat.widgets.status_bar import StatusBar
from app.chat.wording.attention import Attention
from app.chat.wording.status import NEARLY_FULL, window_used
from engine.errors import EngineDied, OctavoError, PromptTooLong
from engine.messages import Role
from engine.survey import PoolSurvey

if TYPE_CHECKING:
    from app.chat.app import ChatApp

_TICK_S = 0.5
"""Between two looks at the KV pool while something runs, and at what other instances have stored."""
_LONG_S = 15
"""How long a sentence about a failure can be read."""
_WIDE = 100
"""Columns from which on the sidebar has a place of its own."""
_BROAD = 132
"""Columns from which on the KV pool has one too."""


class Shell(Screen[None]):
    """The base of the screen that shows a chat; it composes Sidebar, PoolPanel and StatusBar."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide"), (_BROAD, "-broad")]  # noqa: RUF012 - Textual declares it so
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+b", "sidebar", "Chats", priority=True, id="sidebar"),
        Binding("ctrl+f", "search", "Search", priority=True, id="search"),
        Binding("f2", "pool", "KV pool", priority=True, id="pool"),
        Binding("f5", "go_on", "Restart and go on", show=False, priority=True, id="go_on"),
        Binding("f6", "make_room", "Make room in the window", show=False, priority=True, id="make_room"),
        Binding("alt+up,ctrl+pageup", "neighbour(-1)", "Previous chat", show=False, priority=True, id="previous_chat"),
        Binding("alt+down,ctrl+pagedown", "neighbour(1)", "Next chat", show=False, priority=True, id="next_chat"),
    ]

    def __init__(self, session: Session, beginning: Beginning) -> None:
        super().__init__()
        self.session = session
        self._beginning = beginning
        self.chat: OpenChat = session.new_chat()
        self.attention = Attention()
        self._survey: PoolSurvey | None = None
        self._wants_survey = True
        self._is_asking = False
        self._n_ticks = 0
        self._warned: set[int] = set()
        self._sidebar_wanted: bool | None = None

    async def show_chat(self, chat: OpenChat, message_id: int | None = None) -> None:
        """Show another chat, and the place of a message in it."""
        raise NotImplementedError

    def focus_chat(self) -> None:
        """Put the cursor where the user writes."""
        raise NotImplementedError

    # --- what happens ---

    async def begin(self) -> None:
        """Show the first chat, or help with the choice of a model; look from now on at what changes by itself."""
        self.query_one(PoolPanel).display = False
        self._place_sidebar()
        self.set_interval(_TICK_S, self._tick)
        self.focus_chat()
        beginning = self._beginning
        if beginning.welcome:
            self.app.push_screen(WelcomeScreen(choices, self._post), self._after_welcome)
            return
        with self.telling():
            chat = self.session.open_chat(beginning.chat_id) if beginning.chat_id is not None else self.chat
            if beginning.model is not None:
                self.session.change_settings(chat, replace(chat.settings, model=beginning.model))
            await self.show_chat(chat)

    async def _after_welcome(self, choice: Choice | None) -> None:
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
        """Another chat is on the screen: load its model while the user reads and writes."""
        self.attention.see(self.chat.chat_id)
        host, status = self.session.host, self.query_one(StatusBar)
        try:
            self.session.prepare(self.chat)
        except OctavoError as error:
            self.tell_failure(error)
            status.change(model=self.chat.settings.model or "", loaded=None, loading=None, is_down=False)
        else:
            status.change(model=self._model(), loaded=host.loaded)
        status.change(used=window_used(self.chat.conversation))
        self._show_attention()
        self._show_survey()

    def follow(self, event: SessionEvent) -> None:
        """Show what an event means for the surroundings of the chat."""
        status, is_news = self.query_one(StatusBar), self.attention.take(event, self.chat.chat_id)
        match event:
            case EngineLoading(fraction):
                status.change(model=self._model(), loading=fraction, is_down=False)
            case EngineReady(loaded):
                status.change(model=self._model(), loading=None, loaded=loaded, is_down=False)
                self._wants_survey = True
            case EngineFailed(error):
                status.change(loading=None, loaded=None, is_down=True, kv=None)
                self.tell_failure(error)
            case Noticed(_, text):
                self.notify(text, markup=False)
            case TitleChanged() | MessageAdded():
                self.query_one(Sidebar).reload(self.chat.chat_id)
            case PromptProgress(chat_id, _, _, total, _) if chat_id == self.chat.chat_id:
                status.change(used=total)
            case ReplyEnded(chat_id, message, error) if chat_id == self.chat.chat_id:
                self._reply_ended(message, error)
        if is_news:
            self._show_attention()
        if isinstance(event, MessageAdded | ReplyEnded | TitleChanged):  # what is over before the next tick counts too
            self._wants_survey = True

    def _model(self) -> str:
        path = self.session.host.path
        return path.stem if path else ""

    def _reply_ended(self, message: Message, error: OctavoError | None) -> None:
        status = self.query_one(StatusBar)
        status.change(used=error.n_tokens if isinstance(error, PromptTooLong) else window_used(self.chat.conversation))
        if is_at_edge(message, error, self.chat.settings):
            if self.is_current:
                self.action_make_room()
        elif (status.status.fullness or 0) >= NEARLY_FULL and self.chat.chat_id not in self._warned:
            self._warned.add(self.chat.chat_id)
            self.notify(f"The window of this chat is {status.status.fullness:.0%} full: F6 makes room.", markup=False)

    def _show_attention(self) -> None:
        self.query_one(Sidebar).redraw(self.chat.chat_id)
        elsewhere, unread = self.attention.elsewhere(self.chat.chat_id), len(self.attention.unread)
        self.query_one(StatusBar).change(elsewhere=elsewhere, unread=unread)

    def _tick(self) -> None:
        self._n_ticks += 1
        host = self.session.host
        if self._wants_survey and not self._is_asking and host.loaded is not None:
            self._is_asking = True
            host.survey(self._take_survey)
            self._wants_survey = False
        self._wants_survey = self._wants_survey or host.is_busy
        if self._n_ticks % 2 == 0:
            with self.telling():
                if self.session.store.changed():
                    self.query_one(Sidebar).reload(self.chat.chat_id)

    def _take_survey(self, survey: PoolSurvey | OctavoError) -> None:
        self._is_asking = False
        if isinstance(survey, PoolSurvey):
            self._survey = survey
            self.query_one(StatusBar).change(kv=survey.kv)
            self._show_survey()

    def _show_survey(self) -> None:
        panel = self.query_one(PoolPanel)
        if panel.display and self._survey is not None:
            panel.show(self._survey, self.chat.chat_id, self.session.titles())

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

    def action_pool(self) -> None:
        """Show the KV pool, or hide it."""
        panel = self.query_one(PoolPanel)
        panel.display = not panel.display
        self._wants_survey = True
        self.call_after_refresh(self._show_survey)

    def action_go_on(self) -> None:
        """Start the engine again if need be, and go on with a reply that did not come to its end."""
        chat, leaf = self.chat, self.chat.conversation.leaf
        if chat.reply is not None:
            return
        with self.telling():
            message = None if leaf is None else chat.conversation.messages[leaf]
            if message is not None and message.role is Role.USER:
                self.session.regenerate(chat, message.id)
            elif message is not None and message.state is not MessageState.COMPLETE:
                self.session.resume(chat, message.id)
            else:
                self.session.prepare(chat)

    def action_make_room(self) -> None:
        """Choose what to do about a window that is full, or nearly."""
        loaded, status = self.session.host.loaded, self.query_one(StatusBar).status
        if loaded is None or self.chat.conversation.leaf is None or self.chat.reply is not None:
            self.notify("There is nothing to make room for at this moment.", markup=False)
            return
        screen = EdgeScreen(self.session, self.chat, loaded.context, status.used or 0, status.kv)
        self.app.push_screen(screen, self._after_edge)

    async def _after_edge(self, outcome: Outcome | None) -> None:
        with self.telling():
            match outcome:
                case Summarized(settings, text):
                    chat = self.session.new_chat()
                    self.session.change_settings(chat, settings)
                    await self.show_chat(chat)
                    self.session.send(chat, text)
                case LargerWindow(context):
                    what = f"The window is {context:,} tokens now"
                    self.notify(f"{what}: the model is loaded again, and its cache computed anew.", markup=False)

    # --- failures ---

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """What cannot be done is told; nothing else happens."""
        try:
            yield
        except OctavoError as error:
            self.tell_failure(error)

    def tell_failure(self, error: OctavoError) -> None:
        """Show why something cannot be done."""
        self.notify(failure_text(error), severity="error", markup=False, timeout=_LONG_S)


def failure_text(error: OctavoError) -> str:
    """The sentence of an error, and which key helps."""
    if isinstance(error, EngineDied):
        return f"{error} F5 does that, and goes on with the reply."
    if isinstance(error, PromptTooLong):
        return f"{error} F6 shows how to go on."
    return str(error)
