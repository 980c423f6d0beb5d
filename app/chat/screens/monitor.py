"""What the engine does for the chat on the screen, and help where a reply cannot go on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from textual.binding import Binding
from textual.screen import Screen

from app.chat.answering.making_room import is_at_edge
from app.chat.answering.window_edge import LargerWindow
from app.chat.conversation import Message, MessageState
from app.chat.events import (
    EngineFailed,
    EngineLoading,
    EngineReady,
    MessageAdded,
    PromptProgress,
    ReplyEnded,
    SessionEvent,
    TitleChanged,
)
from app.chat.open_chat import OpenChat
from app.chat.screens.window_edge import EdgeScreen, Outcome, Summarized
from app.chat.session import Session
from app.chat.widgets.message_keys import key_of
from app.chat.widgets.pool_panel import PoolPanel
from app.chat.widgets.status_bar import StatusBar
from app.chat.wording.status import NEARLY_FULL, window_used
from engine.errors import EngineDied, OctavoError, PromptTooLong
from engine.messages import Role
from engine.survey import PoolSurvey

_TICK_S = 0.5
"""Between two looks at the KV pool while something runs."""
_LONG_S = 15
"""How long a sentence about a failure can be read."""
_RESTART, _MAKE_ROOM = "go_on", "make_room"
"""Ids of keys that sentences name."""


class Monitor(Screen[None]):
    """The base of the screen that shows a chat; it composes PoolPanel and StatusBar."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("f2", "pool", "KV pool", priority=True, id="pool"),
        Binding("f5", "go_on", "Restart and go on", show=False, priority=True, id=_RESTART),
        Binding("f6", "make_room", "Make room in the window", show=False, priority=True, id=_MAKE_ROOM),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session
        self.chat: OpenChat = session.new_chat()
        self._survey: PoolSurvey | None = None
        self._wants_survey = True
        self._is_asking = False
        self._warned: set[int] = set()

    async def show_chat(self, chat: OpenChat, message_id: int | None = None) -> None:
        """Show another chat, and the place of a message in it."""
        raise NotImplementedError

    # --- what happens ---

    def begin_watching(self) -> None:
        """Look from now on at what the engine does."""
        self.query_one(PoolPanel).display = False
        self.set_interval(_TICK_S, self._look)

    def engine_wanted(self) -> None:
        """Another chat is on the screen: load its model while the user reads and writes."""
        host, status = self.session.host, self.query_one(StatusBar)
        try:
            self.session.prepare(self.chat)
        except OctavoError as error:
            self.tell_failure(error)
            status.change(model=self.chat.settings.model or "", loaded=None, loading=None, is_down=False)
        else:
            status.change(model=self._model(), loaded=host.loaded)
        status.change(used=window_used(self.chat.conversation), room_key=key_of(self, _MAKE_ROOM))
        self._show_survey()

    def follow_engine(self, event: SessionEvent) -> None:
        """Show what an event says about the engine."""
        status = self.query_one(StatusBar)
        match event:
            case EngineLoading(fraction):
                status.change(model=self._model(), loading=fraction, is_down=False)
            case EngineReady(loaded):
                status.change(model=self._model(), loading=None, loaded=loaded, is_down=False, kv=None)
                self._wants_survey = True
            case EngineFailed(error):
                status.change(loading=None, loaded=None, is_down=True, kv=None)
                self.tell_failure(error)
            case PromptProgress(chat_id, _, _, total, _) if chat_id == self.chat.chat_id:
                status.change(used=total)
            case ReplyEnded(chat_id, message, error) if chat_id == self.chat.chat_id:
                self._reply_ended(message, error)
        if isinstance(event, MessageAdded | ReplyEnded | TitleChanged):  # what is over before the next look counts too
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
            room = f"{key_of(self, _MAKE_ROOM)} makes room"
            self.notify(f"The window of this chat is {status.status.fullness:.0%} full: {room}.", markup=False)

    def _look(self) -> None:
        host = self.session.host
        if self._wants_survey and not self._is_asking and host.loaded is not None:
            self._is_asking = True
            host.survey(self._take_survey)
            self._wants_survey = False
        self._wants_survey = self._wants_survey or host.is_busy

    def _take_survey(self, survey: PoolSurvey | OctavoError) -> None:
        self._is_asking = False
        if isinstance(survey, PoolSurvey) and self.is_attached:  # the app may be about to end
            self._survey = survey
            self.query_one(StatusBar).change(kv=survey.kv)
            self._show_survey()

    def _show_survey(self) -> None:
        panel = self.query_one(PoolPanel)
        if panel.display and self._survey is not None:
            panel.show(self._survey, self.chat.chat_id, self.session.titles())

    # --- what the user does ---

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
        self.notify(self.failure_text(error), severity="error", markup=False, timeout=_LONG_S)

    def failure_text(self, error: OctavoError) -> str:
        """The sentence of an error, and which key helps."""
        if isinstance(error, EngineDied):
            return f"{error} {key_of(self, _RESTART)} does that, and goes on with the reply."
        if isinstance(error, PromptTooLong):
            return f"{error} {key_of(self, _MAKE_ROOM)} shows how to go on."
        return str(error)
