"""How the app begins: with which chat, and what the user has to be told first."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.errors import StoreError
from app.chat.storage.rows import ChatSummary
from app.chat.storage.store import ChatStore
from app.chat.wording.chat_groups import filtered
from engine.printable import quoted

_SHOWN = 3


@dataclass(frozen=True)
class Beginning:
    """chat_id: of the chat to open, None is a new one. model: for that chat, instead of its own.

    welcome: whether to help with the choice of a model. problems: sentences about the settings.
    """

    chat_id: int | None = None
    model: str | None = None
    welcome: bool = False
    problems: tuple[str, ...] = ()


FRESH = Beginning()
"""With a new chat."""


def latest_chat(store: ChatStore) -> int:
    """Id of the chat with the newest message. Raises StoreError when there is none."""
    chats = store.chats()
    if not chats:
        raise StoreError("There is no chat to continue: 'octavo chat' begins one.")
    return max(chats, key=lambda chat: (chat.updated, chat.id)).id


def chat_called(store: ChatStore, name: str) -> int:
    """Id of the chat that a user means by its number, its title, or words of it. Raises StoreError."""
    chats = [*store.chats(), *store.chats(archived=True)]
    numbered = [chat for chat in chats if str(chat.id) == name.strip()]
    same = numbered or [chat for chat in chats if chat.title.casefold() == name.strip().casefold()]
    found = same or filtered(chats, name)
    if len(found) == 1:
        return found[0].id
    if not found:
        raise StoreError(f"No chat is called {quoted(name, 40)}: Ctrl-F in 'octavo chat' searches all of them.")
    raise StoreError(f"Several chats are called {quoted(name, 40)}: give a number: {_numbers(found)}.")


def _numbers(chats: list[ChatSummary]) -> str:
    shown = ", ".join(f"{chat.id} is {quoted(chat.title, 40)}" for chat in chats[:_SHOWN])
    return shown + (" …" if len(chats) > _SHOWN else "")
