"""Stored chats under headings, a line each: one widget for all of them, so that thousands stay quick."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.storage.rows import ChatSummary
from app.chat.wording.chat_groups import ChatGroup
from engine.printable import one_line

_REPLYING, _UNREAD, _SHOWN = "◌", "●", "›"
"""Marks before a title: it is being answered, it has an answer that nobody has seen, it is on the screen."""

NO_TITLE = "Without a title"


class Marks(NamedTuple):
    """Ids of chats. shown: the one on the screen."""

    shown: int
    replying: Collection[int]
    unread: Collection[int]


class ChatList(OptionList):
    """The id of an option is that of its chat; headings cannot be chosen."""

    def show(self, groups: Iterable[ChatGroup], marks: Marks) -> None:
        """Show these chats; the cursor stays on the chat it is on, or near its place."""
        before, place = self.chosen, self.highlighted
        options: list[Option] = []
        for group in groups:
            options.append(Option(Content.styled(group.heading, "bold $foreground-muted"), disabled=True))
            options += (Option(_line(chat, marks), id=str(chat.id)) for chat in group.chats)
        self.set_options(options)
        self.highlighted = self._near(place or 0)
        self.go_to(marks.shown if before is None else before)

    @property
    def chosen(self) -> int | None:
        """Id of the chat that the cursor is on."""
        option = self.highlighted_option
        return int(option.id) if option and option.id else None

    def go_to(self, chat_id: int) -> None:
        """Put the cursor on a chat, if it is listed."""
        if str(chat_id) in self._id_to_option:
            self.highlighted = self.get_option_index(str(chat_id))

    def _near(self, place: int) -> int | None:
        """The last option that can be chosen up to a place, else the first one."""
        chats = [index for index, option in enumerate(self.options) if not option.disabled]
        return max((index for index in chats if index <= place), default=min(chats, default=None))


def _line(chat: ChatSummary, marks: Marks) -> Content:
    mark = " "
    if chat.id in marks.replying:
        mark = _REPLYING
    elif chat.id in marks.unread:
        mark = _UNREAD
    elif chat.id == marks.shown:
        mark = _SHOWN
    style = "bold" if chat.id == marks.shown or mark == _UNREAD else ""
    return Content.assemble((mark, "$accent"), " ", (one_line(chat.title) or NO_TITLE, style))
