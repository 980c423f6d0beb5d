"""Everything that is seen of a comparison: who answers what, the figures so far, and what the keys do."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Static

from app.compare.control import Control
from app.compare.events import AnswerText, Ended, Loading, Turn
from app.compare.record import Record
from app.compare.screen.backstage import News, Prepared, Reading
from app.compare.screen.figures_view import FiguresView
from app.compare.screen.lane_pane import LanePane
from app.compare.screen.progress_line import ProgressLine
from app.compare.screen.snapshot import Snapshot
from app.compare.screen.words import time_left, turn_words, who
from engine.printable import one_line
from engine.units import short_count

ANSWERS, FIGURES = "answers", "figures"
_HELP = "One lane computes at a time. + and - change how often all is repeated: "
_PAUSED = "Paused: what runs comes to its end. Space goes on."
_STOPPING = "Stopping … the same key again leaves at once."


class MainScreen(Screen[None]):
    """model: its name, until more is known."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._control: Control | None = None
        self._panes: dict[str, LanePane] = {}
        self._questions: dict[str, str] = {}
        self._turn: Turn | None = None
        self._snapshot: Snapshot | None = None
        self._is_stopping = self._is_over = False
        self._heading = Static(Content.styled(one_line(model), "bold"), id="title", markup=False)
        self._progress = ProgressLine()
        self._answers = Horizontal(id=ANSWERS)
        self._figures: FiguresView | None = None
        self._views = ContentSwitcher(self._answers, initial=ANSWERS, id="views")
        self._note = Static(id="note", markup=False)

    def compose(self) -> ComposeResult:
        """A title, the progress, either of two views, a note and the keys."""
        yield from (self._heading, self._progress, self._views, self._note)
        yield Footer(show_command_palette=False)

    @property
    def view(self) -> str:
        """ANSWERS or FIGURES."""
        return self._views.current or ANSWERS

    @view.setter
    def view(self, view: str) -> None:
        self._views.current = view
        self._draw_figures()
        if view == FIGURES and self._figures is not None:
            self._figures.focus()

    async def begin(self, prepared: Prepared, control: Control) -> None:
        """What will be measured is known."""
        record, plan = prepared.record, prepared.plan
        self._control = control
        self._heading.update(_title(record))
        steps = plan.session.steps if plan.session else ()
        self._questions = {step.name: step.question for step in steps}
        self._panes = {lane: LanePane(lane, number, len(steps)) for number, lane in enumerate(record.lanes)}
        await self._answers.mount_all(self._panes.values())
        tests = [*(test.name for test in plan.raw), *(test.name for test in plan.batch)]
        self._figures = FiguresView(record.lanes, tests)
        self._figures.display = False
        await self._views.mount(self._figures)
        self.show_note()

    def take(self, news: News) -> None:
        """Show what has happened."""
        if news.snapshot is not None:
            self._snapshot = news.snapshot
            for pane in self._panes.values():
                pane.show(news.snapshot)
            self._draw_figures()
        match news.event:
            case Turn() as turn:
                self._begin_turn(turn)
            case Ended():
                self._end(news)
            case _:
                pass

    def add_pieces(self, pieces: list[AnswerText]) -> None:
        """What has come of answers."""
        texts: dict[str, str] = {}
        for piece in pieces:
            texts[piece.lane] = texts.get(piece.lane, "") + piece.text
        for lane, text in texts.items():
            self._panes[lane].add_text(text)

    def show_latest(self, latest: Loading | Reading) -> None:
        """How far a file is read."""
        if isinstance(latest, Reading):
            self._progress.show("Reading the model, to know which one it is", latest.fraction)
        elif latest.lane in self._panes:
            self._panes[latest.lane].say(f"{latest.variant} loading {latest.fraction:.0%}".strip())

    def show_note(self, *, is_stopping: bool = False) -> None:
        """Below the views: what state it is in."""
        self._is_stopping |= is_stopping
        note = self._note
        note.set_class(False, "-paused")
        if self._is_stopping and not self._is_over:
            note.update(Content(_STOPPING))
        elif self._is_over:
            note.update(Content("Done. Arrows scroll, t shows the answers, s saves the record, q leaves."))
        elif self._control is not None:
            note.set_class(self._control.paused, "-paused")
            note.update(Content(_PAUSED if self._control.paused else f"{_HELP}{self._control.repeat}"))

    def _draw_figures(self) -> None:
        """Only where they are seen."""
        if self._figures is not None and self._snapshot is not None and self.view == FIGURES and not self._is_over:
            self._figures.show(self._snapshot, self._turn.test if self._turn else "")

    def _begin_turn(self, turn: Turn) -> None:
        assert self._control is not None
        previous, self._turn = self._turn, turn
        words = turn_words(turn, self._control.repeat)
        self._progress.show(f"{words}, {who(turn)}", turn.done, time_left(turn.seconds_left))
        for lane, pane in self._panes.items():
            if lane == turn.lane:
                pane.begin(turn, self._questions.get(turn.test, ""))
            else:
                pane.rest()
        if previous is None or previous.phase != turn.phase:
            self.view = ANSWERS if turn.phase == "session" else FIGURES

    def _end(self, news: News) -> None:
        assert news.snapshot is not None
        assert self._figures is not None
        self._is_over = True
        self._turn = None
        for pane in self._panes.values():
            pane.rest()
        self._progress.show("Done", 1.0)
        self._figures.conclude(news.snapshot)
        self.view = FIGURES
        self.show_note()


def _title(record: Record) -> Content:
    model, machine, settings = record.model, record.machine, record.settings
    more = (
        f"  {model.quantization}, {short_count(model.parameters)} parameters; window {settings.context:,}; "
        f"{machine.processor} on {machine.device}"
    )
    return Content.assemble((one_line(model.file), "bold"), (one_line(more), "$foreground-muted"))
