"""The commands about the model of a chat and its other settings."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.choosing.choice import Choice
from app.chat.errors import ComposeError
from app.chat.preferences.settings import ChatSettings
from app.chat.screens.picker import PickerScreen
from app.chat.screens.settings import SettingsScreen
from app.chat.session import model_of
from app.chat.widgets.composer import Composer
from app.chat.writing.slash import DEFAULT
from engine.errors import OctavoError
from engine.printable import quoted
from models.catalogue import Catalogue
from models.locate import locate

if TYPE_CHECKING:
    from app.chat.app import ChatApp
    from app.chat.screens.chat import ChatScreen

_THINKING = {"on": True, "off": False, "auto": None}


class SettingCommands:
    """Acts on the chat that a screen shows. Methods raise OctavoError, and change nothing then."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._session = screen.session

    def choose_model(self, name: str = "") -> None:
        """Take a model for this chat, or choose one from a list."""
        if name:
            self._use_model(name)
            return
        picker = PickerScreen(
            "Model of this chat",
            _models,
            current=self._model_in_use(),
            empty="No models are installed: 'octavo pull USER/REPO' downloads one.",
        )
        self._screen.app.push_screen(picker, self._use_chosen)

    def _model_in_use(self) -> str | None:
        with contextlib.suppress(OctavoError):
            path = locate(self._screen.chat.settings.model)
            return next((model.name for model in Catalogue().models() if model.path == path), None)
        return None

    def _use_chosen(self, name: str | None) -> None:
        if name is not None:
            with self._screen.telling():
                self._use_model(name)

    def _use_model(self, name: str) -> None:
        self.apply(replace(self._screen.chat.settings, model=name))

    def apply(self, settings: ChatSettings) -> None:
        """Let this chat have other settings, and load what they ask for."""
        chat = self._screen.chat
        is_engine_other = _engine_part(settings) != _engine_part(chat.settings)
        if is_engine_other:
            model_of(settings)  # raises before anything has changed
        self._session.change_settings(chat, settings)
        if is_engine_other:
            self._session.prepare(chat)

    def set(self, argument: str = "") -> None:
        """Change a setting, tell its value, or show all."""
        if not argument:
            self._show_settings()
            return
        name, text = [*argument.split(None, 1), ""][:2]
        settings = self._screen.chat.settings
        changed = settings.with_text(name, "" if text == DEFAULT else text)
        if text:
            self.apply(changed)
        value = getattr(self._screen.chat.settings, name)
        self._tell(f"{name} is {'the default' if value is None else _shown(value)}.")

    def _show_settings(self) -> None:
        app: ChatApp = self._screen.app  # type: ignore[assignment]

        def save_defaults(settings: ChatSettings) -> None:
            if settings.model != app.settings.chat.model:
                locate(settings.model)
            app.change_settings(replace(app.settings, chat=settings))

        chat, defaults = self._screen.chat.settings, self._session.defaults
        app.push_screen(SettingsScreen(chat, self.apply, defaults, save_defaults))

    def set_system(self, text: str) -> None:
        """Set the system prompt, or put it into the composer to be edited."""
        settings = self._screen.chat.settings
        if text:
            self.apply(replace(settings, system=text))
            self._tell("The system prompt holds from the next reply on; '/set system default' takes it away.")
        elif settings.system:
            self._composer.put(f"/system {settings.system}")
        else:
            raise ComposeError("This chat has no system prompt: write one after /system.")

    def think(self, word: str) -> None:
        """Let a reasoning model think, or not, or as it likes."""
        if word.lower() not in _THINKING:
            raise ComposeError(f"/think cannot be {quoted(word, 40)}: give on, off or auto.")
        self.apply(replace(self._screen.chat.settings, thinking=_THINKING[word.lower()]))
        self._tell(f"Thinking is {word.lower()} from the next reply on.")

    @property
    def _composer(self) -> Composer:
        return self._screen.query_one(Composer)

    def _tell(self, text: str) -> None:
        self._screen.notify(text, markup=False)


def _models() -> list[Choice]:
    from app.chat.choosing.model_choices import model_choices  # noqa: PLC0415 - numpy and ggml would delay every start

    return model_choices()


def _shown(value: object) -> str:
    """A value in a sentence; a text in quotes, and of a long one the beginning."""
    return quoted(value) if type(value) is str else str(value)


def _engine_part(settings: ChatSettings) -> tuple[object, ...]:
    """What the model is loaded anew for."""
    return (
        settings.model,
        settings.engine,
        settings.context,
        settings.threads,
        settings.device,
        settings.kv_type,
    )
