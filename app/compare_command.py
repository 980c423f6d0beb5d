"""`octavo compare`: the same work through several engines, and what it comes to, with a screen or without."""

from __future__ import annotations

import contextlib
import queue
import threading
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.compare.control import Control
from app.compare.endpoint import Endpoint
from app.compare.events import Ended, Event, LaneFailed, Loading, Turn
from app.compare.lineup import DEFAULT_LANES, LANES
from app.compare.record import Record
from app.compare.report import as_csv, as_json, as_markdown, as_plain
from app.compare.report_tables import lane_name
from app.compare.saving import check_writable
from app.compare.saving import save as save_record
from app.compare.scenarios import Part
from app.compare.setup import Prepared, Wish, prepare
from app.options import ENGINE_OPTIONS, Words, engine_config
from app.terminal import Interrupted, StatusLine, has_terminal, interrupts_to, tolerate_encoding, write_json, write_text
from engine.errors import OctavoError
from models.locate import locate

_LAST_SECONDS = 5.0
"""That the engines have to end after the screen has."""

_OPTIONS = [option for option in ENGINE_OPTIONS if option.name != "engine"]


def _lanes(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    unknown = [name for name in names if name not in LANES]
    if unknown:
        raise click.BadParameter(f"there is no lane {', '.join(unknown)}: choose from {', '.join(LANES)}.")
    return names


@click.command(params=[*_OPTIONS])
@click.option("--plain", "form", flag_value="plain", help="Print tables as text.")
@click.option("--json", "form", flag_value="json", help="Print the whole record as one JSON object.")
@click.option("--csv", "form", flag_value="csv", help="Print one figure a line.")
@click.option("--md", "form", flag_value="md", help="Print tables as Markdown.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Write the whole record to a JSON file.")
@click.option(
    "--repeat", type=click.IntRange(1, 100), default=2, show_default=True, help="How often to play the session."
)
@click.option("--full", is_flag=True, help="Longer answers, all depths up to the window, and batches.")
@click.option("--only", type=click.Choice([part.value for part in Part]), help="Measure one part alone.")
@click.option(
    "--lanes",
    default=",".join(DEFAULT_LANES),
    show_default=True,
    callback=_lanes,
    help=f"Of {', '.join(LANES)}: the others are compared with the first.",
)
@click.option(
    "--endpoint",
    "endpoints",
    multiple=True,
    type=Words(),
    metavar="URL[#MODEL]",
    help="A server with OpenAI's interface as one more lane; repeatable.",
)
@click.argument("model", required=False)
def compare(
    model: str | None,
    form: str | None,
    save: Path | None,
    repeat: int,
    full: bool,
    only: str | None,
    lanes: tuple[str, ...],
    endpoints: tuple[str, ...],
    **options: Any,
) -> int:
    """Compare the speed of the paged engine with llama.cpp's on this machine, for MODEL.

    A single user's session is played through both, step by step in turns, and then raw speed is measured. Without
    MODEL it is for the starter model. Other programs disturb the measurement.
    """
    tolerate_encoding()
    wish = Wish(
        path=locate(model),
        config=engine_config(None, **options),
        lanes=lanes,
        endpoints=tuple(map(Endpoint.parse, endpoints)),
        repeat=repeat,
        full=full,
        only=Part(only) if only else None,
    )
    if not (wish.lanes or wish.endpoints):
        raise click.UsageError("Give at least one lane, or an endpoint.")
    if save is not None:
        check_writable(save)
    record, code = _on_screen(wish, save) if form is None and has_terminal() else _in_lines(wish)
    if record is None:
        return code
    if not code and record.is_complete and not (record.session or record.raw):
        raise OctavoError("Nothing could be measured, for the reasons above.")
    try:
        if save is not None:
            save_record(record, save)
    finally:
        _write(record, form or "plain")
    return code


def _in_lines(wish: Wish) -> tuple[Record, int]:
    """Measure everything, with a line on standard error that tells how far it is; also returns the exit code."""
    status = StatusLine()
    try:
        prepared = prepare(wish, lambda done: status.show(f"Reading {wish.path.name}: {done:.0%}"))
        return prepared.record, _run(prepared, status)
    finally:
        status.clear()


def _on_screen(wish: Wish, save: Path | None) -> tuple[Record | None, int]:
    """The same on a screen. None when the user has left before the model was read."""
    from app.chat.preferences.settings_file import read_settings  # noqa: PLC0415 - needed with a screen only
    from app.compare.screen.app import CompareApp, step_back  # noqa: PLC0415
    from app.full_screen import run  # noqa: PLC0415

    def let_go() -> None:
        screen.backstage.stop()
        screen.backstage.wait(_LAST_SECONDS)
        if save is not None and screen.backstage.prepared is not None:
            with contextlib.suppress(OctavoError):  # there is nobody left to tell
                save_record(screen.backstage.prepared.record, save)

    settings, _ = read_settings()
    screen = CompareApp(partial(prepare, wish), wish.path.name, settings.theme, step_back)
    code = run(screen, let_go)
    screen.backstage.stop()
    screen.backstage.wait(_LAST_SECONDS)
    if screen.backstage.error is not None:
        raise screen.backstage.error
    if screen.backstage.prepared is None:
        return None, code
    record = screen.backstage.prepared.record
    if not (record.session or record.raw):
        for error in record.errors:
            StatusLine().note(f"{lane_name(error.lane, error.variant)}: {error.message}")
    return record, code


def _run(prepared: Prepared, status: StatusLine) -> int:
    """Measure everything; returns the exit code, which tells of an interruption."""
    inbox: queue.SimpleQueue[Event | Interrupted | BaseException] = queue.SimpleQueue()
    control = Control(prepared.plan.repeat)
    comparison = prepared.comparison(control, inbox.put)

    def run() -> None:
        try:
            comparison.run()
        except BaseException as error:
            inbox.put(error)

    code = 0
    with interrupts_to(inbox.put):
        threading.Thread(target=run, name="comparison", daemon=True).start()
        while True:
            match inbox.get():
                case Interrupted() as interrupted:
                    code = interrupted.exit_code
                    status.show("Stopping …")
                    control.stop()
                case BaseException() as error:
                    raise error
                case Ended():
                    return code
                case LaneFailed(error):
                    status.note(f"{lane_name(error.lane, error.variant)}: {error.message}")
                case Loading(lane, variant, fraction) if not code:
                    status.show(f"Loading {lane_name(lane, variant)}: {fraction:.0%}")
                case Turn() as turn if not code:
                    status.show(_progress(turn))
                case _:
                    pass


def _progress(turn: Turn) -> str:
    left = "" if turn.seconds_left is None else f", {turn.seconds_left:,.0f} s left"
    return f"{turn.done:.0%}{left}: {turn.test} with {lane_name(turn.lane, turn.variant)}"


def _write(record: Record, form: str) -> None:
    match form:
        case "json":
            write_json(as_json(record))
        case "csv":
            write_text(as_csv(record))
        case "md":
            write_text(as_markdown(record))
        case _:
            write_text(as_plain(record))
