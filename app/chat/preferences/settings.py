"""What the user may set about a chat, and about the app; plain data, whose values are those that `octavo run` takes."""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import click

from app.chat.errors import SettingsError
from app.options import ENGINE_OPTIONS, REQUEST_OPTIONS, Words, WrongType, allowed, typed_value
from engine.config import EngineKind, KvType
from engine.printable import one_line, quoted
from engine.sequence import SamplingParams

_sampling = SamplingParams()


@dataclass(frozen=True)
class ChatSettings:
    """Of one chat, which keeps them when the defaults change. The fields are documented where they are used.

    model: a name for models/locate.py, None is the starter model. system: system prompt. temperature … seed:
    SamplingParams. max_tokens, thinking: TextRequest. context … device: EngineConfig.
    """

    model: str | None = None
    system: str | None = None
    temperature: float = _sampling.temperature
    top_k: int = _sampling.top_k
    top_p: float = _sampling.top_p
    min_p: float = _sampling.min_p
    repeat_penalty: float = _sampling.repeat_penalty
    seed: int | None = None
    max_tokens: int | None = None
    context: int | None = None
    engine: EngineKind | None = None
    kv_type: KvType = KvType.F16
    threads: int | None = None
    device: str | None = None
    thinking: bool | None = None

    def values(self) -> dict[str, Any]:
        """Name and value of what is not None, as JSON and TOML can hold them."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """The inverse. What another version of Octavo wrote and this one does not take has its default."""
        fit = {}
        for name, value in values.items():
            with contextlib.suppress(SettingsError):
                fit[name] = checked(name, value)
        return cls(**fit)

    def with_text(self, name: str, text: str) -> Self:
        """With one value as the user types it; nothing stands for the default. Raises SettingsError."""
        if not text and name in _TYPES:
            return replace(self, **{name: getattr(ChatSettings(), name)})
        return replace(self, **{name: _converted(name, text, lambda kind: kind.convert(text, None, None))})


@dataclass(frozen=True)
class AppSettings:
    """Of the app. chat: the settings that new chats begin with. theme: by its name, None is Octavo's own.

    keys: what the user presses instead of the usual, by action: {"stop": "escape,ctrl+c"}.
    """

    chat: ChatSettings = ChatSettings()
    theme: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)


def checked(name: str, value: Any) -> Any:
    """A value of JSON or TOML for a field of ChatSettings. Raises SettingsError."""
    return _converted(name, value, lambda kind: typed_value(kind, value))


def _converted(name: str, value: Any, convert: Callable[[click.ParamType[Any]], Any]) -> Any:
    if name not in _TYPES:
        raise SettingsError(f"{quoted(name, 40)} is no setting: use {' or '.join(nearest(name, _TYPES))}.")
    kind = _TYPES[name]
    try:
        result = convert(kind)
    except (click.BadParameter, WrongType):
        shown = quoted(value, 40) if isinstance(value, str) else one_line(json.dumps(value, default=str))[:40]
        raise SettingsError(f"{name} cannot be {shown}: give {allowed(kind)}.") from None
    return _ENUMS[name](result) if name in _ENUMS else result


def explanation(name: str) -> str:
    """What a field of ChatSettings does, and what it can be."""
    return f"{_HELP[name]} Give {allowed(_TYPES[name])}."


def nearest(name: str, known: Collection[str]) -> list[str]:
    """What the user may have meant: the known name that is like it, or else all of them."""
    return difflib.get_close_matches(name, known, n=1) or list(known)


_FIELDS = {field.name for field in fields(ChatSettings)}
_ENUMS = {"engine": EngineKind, "kv_type": KvType}
_TYPES: dict[str, click.ParamType[Any]] = {
    "model": Words(),
    **{str(option.name): option.type for option in (*REQUEST_OPTIONS, *ENGINE_OPTIONS) if option.name in _FIELDS},
    "thinking": click.BOOL,
}
"""What a field can be: what `octavo run` takes."""

_HELP: dict[str, str] = {
    **{str(option.name): str(option.help) for option in (*REQUEST_OPTIONS, *ENGINE_OPTIONS) if option.name in _FIELDS},
    "model": "Name of an installed model, or a file.",
    "system": "What the model is told before the first message.",
    "thinking": "Whether a reasoning model thinks before it answers.",
}
