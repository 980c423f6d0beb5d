"""What a session tells the screens. All of it arrives on the thread of the screens."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.conversation import Message
from engine.errors import OctavoError
from engine.messages import Loaded


@dataclass(frozen=True)
class EngineLoading:
    """The model in use is being loaded: the fraction that is done, from 0 to 1."""

    fraction: float


@dataclass(frozen=True)
class EngineReady:
    """The model in use answers now."""

    loaded: Loaded


@dataclass(frozen=True)
class EngineFailed:
    """The model in use cannot be loaded, or its process has died; the next reply starts it again."""

    error: OctavoError


@dataclass(frozen=True)
class MessageAdded:
    """A message is stored, and the path of its chat ends with it."""

    chat_id: int
    message: Message


@dataclass(frozen=True)
class PromptProgress:
    """Tokens of the prompt that are in the cache, of all; some of them were found there."""

    chat_id: int
    message_id: int
    done: int
    total: int
    reused: int


@dataclass(frozen=True)
class ReplyText:
    """The next piece of a reply."""

    chat_id: int
    message_id: int
    text: str


@dataclass(frozen=True)
class ReplyEnded:
    """A reply is complete, or as complete as it gets. error: why it failed."""

    chat_id: int
    message: Message
    error: OctavoError | None


@dataclass(frozen=True)
class TitleChanged:
    """A chat has another title."""

    chat_id: int
    title: str


@dataclass(frozen=True)
class Noticed:
    """A sentence about the engine or a reply that the user should read."""

    chat_id: int | None
    text: str


SessionEvent = (
    EngineLoading
    | EngineReady
    | EngineFailed
    | MessageAdded
    | PromptProgress
    | ReplyText
    | ReplyEnded
    | TitleChanged
    | Noticed
)
