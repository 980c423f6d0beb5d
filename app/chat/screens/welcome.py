"""The first screen of somebody who has no chat yet: a model to begin with, downloaded if it is not here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, ProgressBar, Static
from textual.widgets.option_list import Option

from app.chat.answering.engine_host import Post
from app.chat.choosing.first_run import FirstModel
from app.chat.choosing.model_download import DownloadEvent, Downloading, ModelDownload
from app.chat.widgets.message_keys import key_of
from engine.errors import OctavoError
from engine.printable import one_line, printable
from engine.units import format_bytes

_GREETING = (
    "Octavo runs language models on this machine; nothing that you write leaves it. Choose a model to begin with. "
    "Others can be added at any time: octavo search and octavo pull find them, /model changes to them."
)
_LONGEST_TITLE = 32
_LEAVE_KEY = "welcome_leave"


class WelcomeScreen(ModalScreen[FirstModel | None]):
    """Ends with the model to begin with, which is installed by then, or None where the user wants to choose later."""

    BINDING_GROUP_TITLE = "Welcome"
    BINDINGS = [Binding("escape", "leave", "Later", show=False, id=_LEAVE_KEY)]  # noqa: RUF012 - Textual's way

    def __init__(self, find_choices: Callable[[], list[FirstModel]], post: Post) -> None:
        """`find_choices` may take a moment, and is called on a thread of its own."""
        super().__init__()
        self._find_choices = find_choices
        self._post = post
        self._choices: list[FirstModel] = []
        self._download: ModelDownload | None = None

    def compose(self) -> ComposeResult:
        """Greeting, models, and how far a download is."""
        with Vertical(classes="dialog wide"):
            yield Static("Welcome to Octavo", classes="dialog-title")
            yield Static(_GREETING, markup=False)
            yield OptionList(id="models")
            yield ProgressBar(id="download", show_eta=True)
            yield Static(id="welcome-note", markup=False)

    def on_mount(self) -> None:
        """Look for models."""
        self.query_one(ProgressBar).display = False
        self._note(self._usage())
        self.run_worker(self._look, thread=True)

    def on_unmount(self) -> None:
        """Nobody waits for a download any more."""
        self._stop()

    def _look(self) -> None:
        found = self._find_choices()
        self._post(partial(self._show, found))

    def _show(self, found: list[FirstModel]) -> None:
        if not self.is_mounted:
            return
        self._choices = found
        models = self.query_one(OptionList)
        width = min(_LONGEST_TITLE, max((len(choice.title) for choice in found), default=0))
        for heading, is_here in (("On this machine", True), ("To download", False)):
            group = [choice for choice in found if (choice.download is None) is is_here]
            if group:
                models.add_option(Option(Content.styled(heading, "bold $foreground-muted"), disabled=True))
                models.add_options(Option(_line(choice, width), id=str(found.index(choice))) for choice in group)
        models.action_first()
        models.focus()

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        choice = self._choices[int(event.option_id or 0)]
        if choice.download is None:
            self.dismiss(choice)
            return
        self.query_one(OptionList).disabled = True
        bar = self.query_one(ProgressBar)
        bar.update(total=None, progress=0)
        bar.display = True
        self._note(f"Asking the hub about {choice.download.reference} …  {self._leave_key} stops it")
        self._download = ModelDownload(choice.download.reference, self._post, partial(self._take, choice))

    def _take(self, choice: FirstModel, event: DownloadEvent) -> None:
        match event:
            case Downloading(done, total):
                self.query_one(ProgressBar).update(total=total, progress=done)
                self._note(
                    f"{choice.title}: {format_bytes(done)} of {format_bytes(total)}  ·  {self._leave_key} stops it"
                )
            case OctavoError():
                self._end_download(f"{event}\n{self._usage()}")
            case model:
                self._download = None
                self.dismiss(FirstModel(choice.title, choice.about, model.n_bytes, choice.fit, model=model.name))

    def action_leave(self) -> None:
        """Stop the download, or go on without choosing."""
        if self._download is not None:
            self._end_download("Stopped: choosing the same model again goes on where this was.")
        else:
            self.dismiss(None)

    def _end_download(self, note: str) -> None:
        self._stop()
        self.query_one(ProgressBar).display = False
        self.query_one(OptionList).disabled = False
        self.query_one(OptionList).focus()
        self._note(note)

    def _stop(self) -> None:
        if self._download is not None:
            self._download.stop()
            self._download = None

    @property
    def _leave_key(self) -> str:
        return key_of(self, _LEAVE_KEY)

    def _usage(self) -> str:
        offline = "A model that you have already, or without a network: octavo import FILE.gguf"
        return f"{offline}  ·  ⏎ choose  {self._leave_key} later"

    def _note(self, text: str) -> None:
        self.query_one("#welcome-note", Static).update(printable(text))


def _line(choice: FirstModel, width: int) -> Content:
    return Content.assemble(
        (f"{one_line(choice.title):<{width}.{width}}", "bold"),
        f"{format_bytes(choice.n_bytes):>12}  {choice.fit:<15} {one_line(choice.about)}",
    )
