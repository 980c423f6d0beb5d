"""Finding words in all chats, with results while they are typed."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.storage.search import SearchHit
from app.chat.widgets.chat_list import NO_TITLE
from app.chat.widgets.line_input import LineInput
from app.chat.widgets.message_keys import key_of
from app.chat.wording.chat_groups import day_name, today
from engine.errors import OctavoError
from engine.printable import one_line

_CLOSE_KEY = "search_close"
_LIMIT = 50
_BEFORE, _AFTER = 40, 120
"""Characters of a snippet that are shown around the match."""


class SearchScreen(ModalScreen[SearchHit | None]):
    """Ends with the hit that the user wants to see, or None."""

    BINDING_GROUP_TITLE = "Search"
    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("escape", "dismiss", "Close", show=False, id=_CLOSE_KEY),
        Binding("down", "move(1)", "Next", show=False, priority=True, id="search_next"),
        Binding("up", "move(-1)", "Previous", show=False, priority=True, id="search_previous"),
    ]

    def __init__(self, search: Callable[[str, int], list[SearchHit]], words: str = "") -> None:
        """`search` is ChatStore.search. words: what to look for at first."""
        super().__init__()
        self._search = search
        self._words = words
        self._hits: list[SearchHit] = []

    def compose(self) -> ComposeResult:
        """What to look for, and what there is."""
        with Vertical(classes="dialog wide"):
            yield Static("Search all chats", classes="dialog-title")
            yield LineInput(self._words, placeholder="Words, the last of which may be unfinished", id="search-words")
            yield OptionList(id="hits")
            yield Static(id="search-note")

    def on_mount(self) -> None:
        """Show what there is."""
        self._show(self._words)

    @on(Input.Changed)
    def _look(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, words: str) -> None:
        note = ""
        try:
            self._hits = self._search(words, _LIMIT) if words.strip() else []
        except OctavoError as error:
            self._hits, note = [], one_line(str(error))
        results = self.query_one(OptionList)
        day = today()
        results.set_options(Option(hit_text(hit, day_name(hit.created.astimezone().date(), day))) for hit in self._hits)
        results.display = bool(self._hits)
        if self._hits:
            results.highlighted = 0
            more = " or more" if len(self._hits) == _LIMIT else ""
            up, down = (key_of(self, name) for name in ("search_previous", "search_next"))
            note = f"{len(self._hits)}{more} found  ·  {up} {down} choose  ⏎ open  {key_of(self, _CLOSE_KEY)} close"
        elif not note:
            note = "Nothing is found." if words.strip() else f"{key_of(self, _CLOSE_KEY)} close"
        self.query_one("#search-note", Static).update(Content.styled(note, "$foreground-muted"))

    def action_move(self, offset: int) -> None:
        """Move the cursor of the results while the words keep the focus."""
        results = self.query_one(OptionList)
        if offset > 0:
            results.action_cursor_down()
        else:
            results.action_cursor_up()

    @on(Input.Submitted)
    def _choose(self) -> None:
        if (place := self.query_one(OptionList).highlighted) is not None:
            self.dismiss(self._hits[place])

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._hits[event.option_index])


def hit_text(hit: SearchHit, day: str) -> Content:
    """The chat that something was found in, when it was written, and the text around it, which may be the title."""
    if hit.message_id is None:
        return Content.assemble(snippet(hit).stylize("bold"), f"  {day}\n", "the title of the chat")
    return Content.assemble((one_line(hit.title) or NO_TITLE, "bold"), f"  {day}\n", snippet(hit))


def snippet(hit: SearchHit) -> Content:
    """The match with some text around it, on one line."""
    before, after = _flat(hit.before), _flat(hit.after)
    if len(before) > _BEFORE:
        before = "…" + before[-_BEFORE:]
    return Content.assemble(before, (_flat(hit.match), "bold reverse"), after[:_AFTER])


def _flat(text: str) -> str:
    """Line ends and runs of spaces as one space each."""
    lead = " " if text[:1].isspace() else ""
    tail = " " if text[1:] and text[-1:].isspace() else ""
    return one_line(lead + " ".join(text.split()) + tail)
