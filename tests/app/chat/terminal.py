"""The real command in a real terminal, as a person uses it: typed into a shell, watched on the screen."""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.app.chat.terminal_windows import USUAL, PtyWindow, TmuxWindow, kinds
from tests.app.command import environment

PATIENCE_S = 60
_LOOK_S = 0.02
_READY = "ready$"
_PROC = Path("/proc/self/stat")


class Terminal:
    """A window with a shell, in which the command can be started; closed with everything in it at the end."""

    def __init__(
        self,
        columns: int = 100,
        lines: int = 30,
        *,
        kind: type[TmuxWindow] | type[PtyWindow] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        usual = {name: value for name, value in environment().items() if name not in ("ENV", "TMUX", "NO_COLOR")}
        self._window = (kind or kinds()[0])(usual | {"PS1": _READY} | dict(variables or {}), columns, lines)
        self._n_started = 0
        self.wait_for(_READY)
        self._modes_before = termios.tcgetattr(self._window.tty)

    # --- what a person does ---

    def octavo(self, *arguments: str) -> None:
        """Start the command."""
        self.run([sys.executable, "-m", "app", *arguments])

    def run(self, command: Sequence[str]) -> None:
        """Start a program; when it has ended, the shell says how."""
        self._n_started += 1
        self._window.type(f'{shlex.join(command)}; echo "end {self._n_started}: $?"')
        self._window.press("Enter")

    def type(self, text: str) -> None:
        """Write characters."""
        self._window.type(text)

    def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        for key in keys:
            self._window.press(key)

    def say(self, text: str) -> None:
        """Write what fits on a line, and press Enter once it is there."""
        self.type(text)
        self.wait_for(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste a text."""
        self._window.paste(text)

    def resize(self, columns: int, lines: int) -> None:
        """Make the window larger or smaller."""
        self._window.resize(columns, lines)

    def hang_up(self) -> None:
        """Close the window."""
        self._window.hang_up()

    # --- what a person sees ---

    def lines(self) -> list[str]:
        """The screen."""
        return self._window.lines()

    def text(self) -> str:
        """The screen, as one text."""
        return "\n".join(self.lines())

    def wait_for(self, text: str) -> None:
        """Until a text is on one line of the screen."""
        self.wait_until(lambda: text in self.text(), text)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Until something is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so():
            assert time.monotonic() < deadline, f"It never came: {what}\n{self.text()}"
            time.sleep(_LOOK_S)

    def exit_code(self) -> int:
        """How the command has ended, once it has."""
        end = re.compile(rf"end {self._n_started}: (\d+)")
        self.wait_until(lambda: end.search(self.text()), "the end of the command")
        found = end.search(self.text())
        assert found is not None
        return int(found[1])

    def is_as_before(self) -> bool:
        """Whether the terminal is what it was at first: its lines, its cursor, how it takes keys and pastes."""
        self._n_started += 1
        self.paste(f'echo "end {self._n_started}: $?"\n')
        self.exit_code()  # brackets around what was pasted would be part of the command
        return self._window.modes() == USUAL and termios.tcgetattr(self._window.tty) == self._modes_before

    # --- processes ---

    def programs(self) -> list[int]:
        """Processes that the shell has started and that still run."""
        return children(self._window.shell)

    def app(self) -> int:
        """Process of the command."""
        (pid,) = self.programs()
        return pid

    def engine(self) -> int:
        """Process of the engine, once there is one."""
        app = self.app()
        self.wait_until(lambda: children(app), "the engine")
        return children(app)[0]

    def wait_for_end_of(self, *pids: int) -> None:
        """Until none of these processes runs."""
        self.wait_until(lambda: not any(map(is_running, pids)), f"the end of {pids}")

    def close(self) -> None:
        """End everything in the window, which `hang_up` may have closed already."""
        self._window.hang_up()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def children(pid: int) -> list[int]:
    """Processes that a process has started and that still run."""
    return [child for child, parent in _parents().items() if parent == pid]


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    return pid in _parents()


def _parents() -> dict[int, int]:
    """The parent of each process that is no zombie: of /proc, which not every system has, or of ps, the same."""
    rows = _rows_of_proc() if _PROC.exists() else _rows_of_ps()
    return {int(pid): int(parent) for pid, state, parent in rows if not state.startswith("Z")}


def _rows_of_proc() -> list[list[str]]:
    """See proc_pid_stat(5); the name, which may have spaces, is in parentheses."""
    rows = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            rows.append([path.parent.name, *path.read_text(errors="replace").rpartition(")")[2].split()[:2]])
    return rows


def _rows_of_ps() -> list[list[str]]:
    listing = subprocess.run(["ps", "-A", "-o", "pid=,state=,ppid="], capture_output=True, text=True, check=True)
    return [line.split() for line in listing.stdout.splitlines()]
