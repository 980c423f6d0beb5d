"""One lane at work: its answer, and below it what the waiting, the speed and the memory are."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from app.compare.events import Turn
from app.compare.record import LaneError
from app.compare.screen.answer_view import AnswerView
from app.compare.screen.first_token_bars import FirstTokenBars, waits_of
from app.compare.screen.headline import Headline
from app.compare.screen.kv_bar import KvBar, scale_of
from app.compare.screen.snapshot import Snapshot
from app.compare.screen.speed_line import SpeedLine, speeds_of
from engine.printable import one_line

_LEAST_ANSWER = 4
"""Lines, with the question."""
_TALL = 28
"""Lines of a pane from which on speed and memory have two lines each."""
_NARROW = 30
LANE_COLOURS = ("$secondary", "$accent", "$success", "$primary")
"""As compare.tcss has them for classes lane-0, lane-1 …"""


class LanePane(Vertical):
    """number: of the lane, from 0; it chooses the colour. n_steps: of the session."""

    def __init__(self, lane: str, number: int, n_steps: int) -> None:
        super().__init__(classes=f"lane lane-{number % len(LANE_COLOURS)}")
        self.lane = lane
        self._n_steps = n_steps
        self._answer = AnswerView()
        self._failure = Static(classes="failure", markup=False)
        self._headline = Headline()
        self._speeds = SpeedLine()
        self._speed = Static(classes="speed-figure", markup=False)
        self._memory = KvBar()
        self._waits = FirstTokenBars()
        self.border_title = Content(one_line(lane))

    def compose(self) -> ComposeResult:
        """The answer, then the figures."""
        yield self._answer
        yield self._failure
        yield self._headline
        with Horizontal(classes="speed"):
            yield Static("decoding  ", classes="label")
            yield self._speeds
            yield self._speed
        yield self._memory
        yield self._waits

    def on_resize(self) -> None:
        """Another size."""
        self._share_room()

    def _share_room(self) -> None:
        """The bars of the steps get what the rest leaves."""
        width, height = self.size
        self.set_class(width < _NARROW, "-narrow")
        self.set_class(height < _TALL, "-short")
        lines = 2 if height >= _TALL else 1
        self.query_one(".speed").styles.height = lines
        self._memory.styles.height = lines
        room = height - _LEAST_ANSWER - 1 - 2 * lines
        self._waits.styles.height = max(0, min(self._n_steps + 1, room))

    def begin(self, turn: Turn, question: str) -> None:
        """It is this lane's turn."""
        self.say(", ".join(filter(None, (turn.test, turn.variant))))
        self.add_class("-active")
        self._answer.ask(question)

    def say(self, text: str) -> None:
        """In the border: what it does."""
        self.border_subtitle = Content(one_line(text))

    def rest(self) -> None:
        """It is another lane's turn."""
        self.remove_class("-active")

    def add_text(self, text: str) -> None:
        """The next piece of the answer."""
        self._answer.add(text)

    def show(self, snapshot: Snapshot) -> None:
        """All figures."""
        self._share_room()  # a widget that appears while another one scrolls is not told of its size
        results = snapshot.results
        figure = next((figure for figure in results.session if figure.lane == self.lane), None)
        self._headline.show(figure)
        speeds = [speeds_of(results, lane.lane) for lane in results.session]
        ours = speeds_of(results, self.lane)
        self._speeds.show(ours, max((speed for each in speeds for speed in each), default=0), self._n_steps)
        latest = next((f"{speed:,.1f} tok/s" for speed in reversed(ours) if speed), "")
        self._speed.update(Content(latest))
        self._memory.show(snapshot.memories.get(self.lane), scale_of(snapshot.memories.values()))
        self._waits.show(waits_of(results, self.lane))
        self._show_failures([error for error in snapshot.errors if error.lane == self.lane])

    def _show_failures(self, errors: list[LaneError]) -> None:
        self._failure.update(Content("\n".join(map(failure_text, errors))))
        self._failure.set_class(bool(errors), "-shown")


def failure_text(error: LaneError) -> str:
    """In one sentence, without the name of the lane."""
    where = ", ".join(filter(None, (error.variant, f"at {error.test}" if error.test else "")))
    return one_line(f"Failed ({where}): {error.message}" if where else f"Failed: {error.message}")
