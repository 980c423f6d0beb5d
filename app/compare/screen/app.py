"""The Textual app of `octavo compare`: keys, and news from backstage to the screen."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import Binding
from textual.message import Message

from app.chat.preferences.themes import DARK, THEMES
from app.compare.control import Control
from app.compare.events import Ended, Measured, Turn
from app.compare.record import Record
from app.compare.saving import save, usual_name
from app.compare.screen.backstage import Backstage, Gone, News, Prepared, Ready
from app.compare.screen.main_screen import ANSWERS, FIGURES, MainScreen
from app.compare.screen.save_dialog import SaveDialog

_FETCH = 0.2
"""Seconds: see backstage.py."""
_NICENESS = 15
_MOST_REPEATS = 100
_INTERRUPTED = 130


class CompareApp(App[None]):
    """prepare: see setup.prepare. model: the name of its file. on_started: called when the comparison's thread
    is there.

    backstage: has what was measured, also afterwards.
    """

    TITLE = "Octavo"
    CSS_PATH = "compare.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("space", "pause", "Pause"),
        Binding("space", "resume", "Resume"),
        Binding("n", "skip", "Skip"),
        Binding("plus,equals_sign", "repeat(1)", "More runs", key_display="+"),
        Binding("minus", "repeat(-1)", "Fewer runs", key_display="-"),
        Binding("s", "save", "Save"),
        Binding("t", "switch", "Tables"),
        Binding("q,escape", "leave", "Quit"),
        Binding("ctrl+c", "leave(True)", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
    ]

    class Told(Message):
        """Something has happened backstage."""

        def __init__(self, news: News) -> None:
            super().__init__()
            self.news = news

    def __init__(
        self,
        prepare: Callable[[Callable[[float], object]], Prepared],
        model: str,
        theme: str | None = None,
        on_started: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        self.backstage = Backstage(prepare, self._tell)
        self._main = MainScreen(model)
        self._on_started = on_started
        self._is_over = self._is_leaving = False
        self._code = 0
        self.animation_level = "none"
        for ours in THEMES:
            self.register_theme(ours)
        self.theme = theme if theme in self.available_themes else DARK.name

    def on_mount(self) -> None:
        """Show the screen at once; the model is read behind it."""
        self.push_screen(self._main)

    def on_ready(self) -> None:
        """What is loaded by now stays, so it is not looked through for garbage while something is measured."""
        gc.collect()
        gc.freeze()
        self.set_interval(_FETCH, self._fetch)
        self.backstage.start()
        self._on_started()

    def _tell(self, news: News) -> bool:
        return self.post_message(self.Told(news))  # any thread may do this

    async def on_compare_app_told(self, message: Told) -> None:
        """Let the screen show it, and the runner go on when it does."""
        news = message.news
        self._fetch()
        match news.event:
            case Ready(prepared):
                assert self.backstage.control is not None
                await self._main.begin(prepared, self.backstage.control)
            case Gone(error):
                self._is_over = True
                if self._is_leaving or error is not None:
                    self.exit(return_code=self._code)
            case Ended():
                self._is_over = True
                self._main.take(news)
            case _:
                self._main.take(news)
        if not isinstance(news.event, Turn | Measured):
            self.refresh_bindings()  # it makes the footer anew
        self.call_after_refresh(news.drawn)

    def _fetch(self) -> None:
        latest = self.backstage.take_latest()
        if latest is not None:
            self._main.show_latest(latest)
        pieces = self.backstage.take_pieces()
        if pieces:
            self._main.add_pieces(pieces)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what can be done now is offered."""
        control = self.backstage.control
        if action in ("pause", "resume", "skip", "repeat"):
            if control is None or self._is_over or self._is_leaving:
                return False
            return action not in ("pause", "resume") or control.paused == (action == "resume")
        return control is not None if action in ("save", "switch") else True

    def action_pause(self) -> None:
        """Begin nothing new."""
        self._control.pause()
        self._changed()

    def action_resume(self) -> None:
        """Go on."""
        self._control.resume()
        self._changed()

    def action_skip(self) -> None:
        """End the scenario that runs."""
        self._control.skip()
        self._changed()

    def action_repeat(self, more: int) -> None:
        """Repeat more or less often; the record tells how often in the end."""
        control, record = self._control, self._record
        control.repeat = min(_MOST_REPEATS, max(1, control.repeat + more))
        record.settings = replace(record.settings, repeat=control.repeat)
        self._changed()

    def action_save(self) -> None:
        """Ask where to save what was measured so far."""
        record = self._record

        def saved(path: Path | None) -> None:
            if path is not None:
                self.notify(f"Saved to {path}.", markup=False)

        self.push_screen(SaveDialog(usual_name(record), lambda path: save(record, path)), saved)

    def action_switch(self) -> None:
        """Show the tables, or the answers again."""
        self._main.view = ANSWERS if self._main.view == FIGURES else FIGURES

    def action_leave(self, interrupted: bool = False) -> None:
        """Leave with what was measured so far; the second time without waiting for the end of it."""
        if self._is_over or self._is_leaving:
            self.exit(return_code=self._code)
            return
        self._code = _INTERRUPTED if interrupted else 0
        self._is_leaving = True
        self.backstage.stop()
        self._main.show_note(is_stopping=True)
        self.refresh_bindings()

    @property
    def _control(self) -> Control:
        assert self.backstage.control is not None
        return self.backstage.control

    @property
    def _record(self) -> Record:
        assert self.backstage.prepared is not None
        return self.backstage.prepared.record

    def _changed(self) -> None:
        self._main.show_note()
        self.refresh_bindings()


def step_back() -> None:
    """From now on this thread, which draws, leaves the processors to the engines where they are scarce.

    For a CompareApp's `on_started`: what a thread starts is as nice as the thread is then, and the one that starts the
    engines is there by that time. There is no way back, and elsewhere than on Linux it would concern all threads.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
