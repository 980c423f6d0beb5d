"""A chat has filled its window: the user chooses what is to become of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.answering.window_edge import DropOldest, LargerWindow, Remedy, SummarizedChat, WindowEdge
from app.chat.open_chat import OpenChat
from app.chat.preferences.settings import ChatSettings
from app.chat.session import Session
from app.chat.widgets.message_keys import key_of
from engine.errors import OctavoError
from engine.printable import one_line, quoted
from engine.sequence import KvStats
from engine.units import format_bytes

_LEAVE_KEY = "edge_leave"


@dataclass(frozen=True)
class Summarized:
    """Another chat is to begin with this text, and with the settings of this chat."""

    settings: ChatSettings
    text: str


Outcome = DropOldest | LargerWindow | Summarized


class EdgeScreen(ModalScreen[Outcome | None]):
    """Ends with what was done or is left to do, or None where all is left as it is."""

    BINDING_GROUP_TITLE = "A full window"
    BINDINGS = [Binding("escape", "leave", "Leave it", show=False, id=_LEAVE_KEY)]  # noqa: RUF012 - Textual's way

    def __init__(self, session: Session, chat: OpenChat, context: int, used: int, kv: KvStats | None) -> None:
        """used: tokens of the window that the chat takes, as far as it is known."""
        super().__init__()
        self._window, self._used = context, used
        self._shown: list[Remedy] = []
        self._find = partial(WindowEdge, session, chat, context, used, kv, self._show)

    def compose(self) -> ComposeResult:
        """What has happened, what can be done, and what is being found out."""
        context = self._window
        how = "is full" if self._used >= context else f"holds {self._used:,} tokens"
        with Vertical(classes="dialog"):
            yield Static("The window of this chat", classes="dialog-title")
            yield Static(
                f"It has room for {context:,} tokens and {how}. Nothing is dropped unless you choose it.", markup=False
            )
            yield OptionList(id="remedies")
            yield Static(id="edge-note", markup=False)

    def on_mount(self) -> None:
        """Find out what can be done, and show what is known so far."""
        self._edge = self._find()
        self._show()

    def on_unmount(self) -> None:
        """Nobody waits for a summary any more."""
        self._edge.cancel()

    def _show(self) -> None:
        if not self.is_attached:
            return  # the user has not waited for it
        order = (DropOldest, SummarizedChat, LargerWindow)
        self._shown = sorted(self._edge.remedies, key=lambda remedy: order.index(type(remedy)))
        choices = self.query_one(OptionList)
        place = choices.highlighted or 0
        choices.set_options([*(Option(_wording(remedy)) for remedy in self._shown), Option("Leave it as it is")])
        choices.highlighted = place
        note = "Counting tokens …" if self._edge.is_looking else self._edge.problem
        self.query_one("#edge-note", Static).update(one_line(note))

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        if event.option_index >= len(self._shown):
            self.dismiss(None)
            return
        remedy = self._shown[event.option_index]
        if isinstance(remedy, SummarizedChat):
            self.query_one(OptionList).display = False
            self.query_one("#edge-note", Static).update(
                f"The model is writing a summary …  {key_of(self, _LEAVE_KEY)} stops it"
            )
            self._edge.summarize(remedy, self._take_summary)
            return
        try:
            self._edge.apply(remedy)
        except OctavoError as error:
            self._fail(error)
        else:
            self.dismiss(remedy)

    def _take_summary(self, text: str | OctavoError) -> None:
        if isinstance(text, OctavoError):
            self._fail(text)
        else:
            self.dismiss(Summarized(self._edge.chat.settings, text))

    def _fail(self, error: OctavoError) -> None:
        self.query_one(OptionList).display = True
        self.query_one("#edge-note", Static).update(one_line(str(error)))

    def action_leave(self) -> None:
        """Do nothing."""
        self.dismiss(None)


def _wording(remedy: Remedy) -> Content:
    match remedy:
        case DropOldest(start, dropped):
            count = "the oldest message" if len(dropped) == 1 else f"the {len(dropped)} oldest messages"
            title = f"Let the model forget {count}"
            until = quoted(" ".join(dropped[-1].text.split()), 40)
            detail = f"up to {until}; {start.n_tokens:,} tokens stay, and all messages stay in the chat"
        case SummarizedChat():
            title = "Go on in a new chat, with a summary"
            detail = "the model writes it, and your last message follows it; this chat stays as it is"
        case LargerWindow(context, n_bytes):
            title = f"Raise the window to {context:,} tokens"
            size = f"they take up to {format_bytes(n_bytes)}; " if n_bytes else ""
            detail = f"{size}the model is loaded again, and the cache of this chat computed anew"
    return Content.assemble((title, "bold"), "\n", detail)
