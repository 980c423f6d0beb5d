"""The chats beside the one that is shown: to open, find, name, pin, archive and delete them."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static

from app.chat.session import Session
from app.chat.storage.rows import ChatSummary
from app.chat.widgets.chat_list import NO_TITLE, ChatList, Marks
from app.chat.widgets.line_input import LineInput
from app.chat.widgets.message_keys import key_of
from app.chat.wording.attention import Attention
from app.chat.wording.chat_groups import ChatGroup, filtered, grouped, today
from engine.errors import OctavoError
from engine.printable import quoted

_UNDO_KEY = "sidebar_undo"
_HINTS = (
    (("sidebar_new", "new"), ("sidebar_rename", "name"), ("sidebar_pin", "pin")),
    (("sidebar_archive", "archive"), ("sidebar_archived", "archived")),
    (("sidebar_delete", "delete"), (_UNDO_KEY, "undo"), ("sidebar_filter", "filter")),
)
"""Lines of keys, each with a word."""


class _Asked(enum.Enum):
    """What the line above the list is for."""

    FILTER = "filter"
    TITLE = "title"


class Sidebar(Vertical):
    """Lists what is stored, and changes it; whoever owns the screen opens chats."""

    BINDING_GROUP_TITLE = "List of chats"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("n", "new", "New chat", show=False, id="sidebar_new"),
        Binding("r", "rename", "Rename", show=False, id="sidebar_rename"),
        Binding("p", "pin", "Pin", show=False, id="sidebar_pin"),
        Binding("a", "archive", "Archive", show=False, id="sidebar_archive"),
        Binding("A", "show_archived", "Archived chats", show=False, id="sidebar_archived"),
        Binding("d,delete", "delete", "Delete", show=False, id="sidebar_delete"),
        Binding("u", "undo", "Undo deleting", show=False, id=_UNDO_KEY),
        Binding("slash", "filter", "Filter", show=False, id="sidebar_filter"),
        Binding("escape", "leave", "Back", show=False, id="sidebar_leave"),
    ]

    @dataclass
    class Opened(Message):
        """The user wants to see this chat."""

        chat_id: int

    @dataclass
    class Deleted(Message):
        """This chat is no longer there."""

        chat_id: int

    class NewChat(Message):
        """The user wants to begin a chat."""

    class Left(Message):
        """The user wants to go back to the chat."""

    def __init__(self, session: Session, attention: Attention) -> None:
        super().__init__(id="sidebar")
        self._session = session
        self._attention = attention
        self._shown = 0
        self._chats: list[ChatSummary] = []
        self._archived = False
        self._asked = _Asked.FILTER
        self._words = ""
        self._renamed = 0
        self._deleted: list[int] = []
        self._is_stale = True

    def compose(self) -> ComposeResult:
        """Heading, the line for a filter or a title, the list, and what the keys do."""
        yield Static(id="sidebar-heading")
        yield LineInput(id="sidebar-input", compact=True)
        yield ChatList(id="chats")
        yield Static(id="sidebar-keys")

    def on_mount(self) -> None:
        """The line appears when there is something to type."""
        self._input.display = False

    @property
    def _input(self) -> Input:
        return self.query_one("#sidebar-input", Input)

    @property
    def _list(self) -> ChatList:
        return self.query_one(ChatList)

    # --- what is shown ---

    def reload(self, shown: int) -> None:
        """The store has changed, or another chat is on the screen. Costs nothing while the sidebar is hidden."""
        self._is_stale, self._shown = True, shown
        if self.display:
            self.catch_up()

    def catch_up(self) -> None:
        """Read the chats from the store, if they may have changed."""
        if self._is_stale and self._try(self._read):
            self._is_stale = False
            self.redraw(self._shown)

    def redraw(self, shown: int) -> None:
        """Show the chats with the marks of this moment."""
        self._shown = shown
        if not self.display:
            self._is_stale = True
            return
        heading = "Archived chats" if self._archived else "Chats"
        self.query_one("#sidebar-heading", Static).update(
            Content.assemble((heading, "bold"), (f"  {len(self._chats):,}", "$foreground-muted"))
        )
        groups = grouped(filtered(self._chats, self._words), today())
        if not groups:
            groups = [ChatGroup("No such chat" if self._words else f"No {heading.lower()} yet", [])]
        self.query_one("#sidebar-keys", Static).update(Content.styled(self._usage(), "$foreground-muted"))
        self._list.show(groups, Marks(shown, self._attention.replying, self._attention.unread))

    def focus_list(self) -> None:
        """Let the keys act on the list, with the cursor on the chat that is shown."""
        self._list.go_to(self._shown)
        self._list.focus()

    def _usage(self) -> str:
        lines = ["  ".join(f"{key_of(self, name)} {word}" for name, word in line) for line in _HINTS]
        return "\n".join(["⏎ open  " + lines[0], *lines[1:]])

    def _read(self) -> None:
        self._chats = self._session.store.chats(archived=self._archived)

    # --- what the keys do ---

    @on(OptionList.OptionSelected, "#chats")
    def _open(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id:
            self.post_message(self.Opened(int(event.option_id)))

    def action_new(self) -> None:
        """Begin a chat."""
        self.post_message(self.NewChat())

    def action_leave(self) -> None:
        """Take the filter away, or go back to the chat."""
        if self._input.display:
            self._close_input(words="" if self._asked is _Asked.FILTER else self._words)
        elif self._words:
            self._close_input(words="")
        else:
            self.post_message(self.Left())

    def action_filter(self) -> None:
        """List only chats whose titles have some words."""
        self._ask(_Asked.FILTER, self._words, "Words of the title")

    def action_rename(self) -> None:
        """Give the chat under the cursor another title."""
        if chat := self._chosen():
            self._renamed = chat.id
            self._ask(_Asked.TITLE, chat.title, "Title")

    def action_pin(self) -> None:
        """Put the chat before all others, or back among them."""
        if chat := self._chosen():
            self._change(lambda: self._session.store.pin(chat.id, not chat.pinned))

    def action_archive(self) -> None:
        """Take the chat out of the list, or put it back."""
        if chat := self._chosen():
            self._change(lambda: self._session.store.archive(chat.id, not chat.archived))

    def action_show_archived(self) -> None:
        """List archived chats instead of the current ones, or these again."""
        self._archived = not self._archived
        self.reload(self._shown)

    def action_delete(self) -> None:
        """Delete the chat under the cursor."""
        if chat := self._chosen():
            self.delete(chat.id, chat.title)

    def delete(self, chat_id: int, title: str) -> None:
        """Delete a chat; it can be restored."""
        if self._change(lambda: self._session.delete_chat(chat_id)):
            self._deleted.append(chat_id)
            self._attention.forget(chat_id)
            self.post_message(self.Deleted(chat_id))
            undo = f"{key_of(self, _UNDO_KEY)} in the list of chats brings it back"
            self.notify(f"Deleted {quoted(title or NO_TITLE, 40)}: {undo}.", markup=False)

    def action_undo(self) -> None:
        """Restore the chat that was deleted last."""
        if self._deleted:
            chat_id = self._deleted[-1]
            if self._change(lambda: self._session.store.restore_chat(chat_id)):
                self._deleted.remove(chat_id)
            self._list.go_to(chat_id)

    # --- the line above the list ---

    def _ask(self, what: _Asked, text: str, placeholder: str) -> None:
        self._asked = what
        line = self._input
        line.placeholder = placeholder
        line.value = text
        line.display = True
        line.focus()

    @on(Input.Changed, "#sidebar-input")
    def _filter(self, event: Input.Changed) -> None:
        event.stop()
        if self._asked is _Asked.FILTER and event.value != self._words:
            self._words = event.value
            self.redraw(self._shown)

    @on(Input.Submitted, "#sidebar-input")
    def _answer(self, event: Input.Submitted) -> None:
        event.stop()
        if self._asked is _Asked.TITLE and event.value.strip():
            self._change(lambda: self._session.rename_chat(self._renamed, event.value))
        self._close_input(words=self._words)

    def _close_input(self, words: str) -> None:
        self._words = words
        self._input.display = False
        self._list.focus()
        self.redraw(self._shown)

    def _chosen(self) -> ChatSummary | None:
        return next((chat for chat in self._chats if chat.id == self._list.chosen), None)

    def _change(self, change: Callable[[], None]) -> bool:
        done = self._try(change)
        self.reload(self._shown)
        return done

    def _try(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OctavoError as error:
            self.notify(str(error), severity="error", markup=False)
            return False
        return True
