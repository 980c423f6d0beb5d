"""What a comparison runs on, and how busy other programs keep it meanwhile."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from app.compare.record import Busy, MachineFacts, ModelFacts
from engine.cgroup import ROOT, read_fields
from engine.devices import find_device
from engine.processor import processor_name
from engine.threads import usable_cores, usable_processors
from models.inspect import ModelSummary

_READ_BYTES = 2**22
_BUSY = 0.1
"""Part of the processors that other programs may use before a comparison is said to have been disturbed."""


def machine_facts(device: str | None) -> MachineFacts:
    """This machine, and the device that engines choose for `device`. Raises DeviceError."""
    chosen = find_device(device)
    return MachineFacts(
        processor=processor_name(),
        cores=usable_cores(),
        processors=usable_processors(),
        device=chosen.name if chosen.kind == "cpu" else f"{chosen.name} ({chosen.description})",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        octavo=version("octavo"),
        llama_cpp_python=version("llama-cpp-python"),
        python=platform.python_version(),
    )


def model_facts(summary: ModelSummary, on_progress: Callable[[float], object]) -> ModelFacts:
    """What a model is; reads its files to hash them. `on_progress` receives the fraction that is read."""
    done = 0
    hashes = []
    for path in summary.paths:
        digest = hashlib.sha256()
        with open(path, "rb", buffering=0) as file:
            while piece := file.read(_READ_BYTES):
                digest.update(piece)
                done += len(piece)
                on_progress(min(1.0, done / max(1, summary.n_bytes)))
        hashes.append(digest.hexdigest())
    return ModelFacts(
        file=summary.paths[0].name,
        sha256=tuple(hashes),
        n_bytes=done,
        architecture=summary.architecture,
        quantization=summary.quantization,
        parameters=summary.parameters,
    )


def process_bytes(pid: int | None) -> int | None:
    """Physical memory of another process of this user, mapped pages of files included; None where nobody tells."""
    if pid is None or sys.platform == "win32":
        return None
    if sys.platform == "linux":
        fields = read_fields(Path(f"/proc/{pid}/statm"))
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None
    output = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return int(output) * 1024 if output.strip().isdecimal() else None


class LoadMeter:
    """How many processors other programs keep busy, on Linux: the time of all, less ours and our children's.

    A hypervisor that gives our processors to others counts as another program. Elsewhere the system's load average
    is all there is, which tells nothing any more as soon as we compute ourselves.
    """

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        """root: of the file system that is asked. clock: in seconds."""
        self._root = root
        self._clock = clock
        self._before: float | None = None
        self._start = self._sample()

    def rest(self, seconds: float = 1.0) -> None:
        """See how busy others are while we are not; called before anything is measured."""
        if self._start is None:
            self._before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
            return
        time.sleep(seconds)
        self._before = self._busy_since_start()
        self._start = self._sample()

    def read(self) -> Busy:
        """Since `rest`, or the start."""
        during = self._busy_since_start()
        figures = [figure for figure in (self._before, during) if figure is not None]
        return Busy(
            others_before=_rounded(self._before),
            others_during=_rounded(during),
            is_busy=max(figures) > _BUSY * usable_processors() if figures else None,
        )

    def _busy_since_start(self) -> float | None:
        now = self._sample()
        if now is None or self._start is None:
            return None
        elapsed, others = (now[i] - self._start[i] for i in range(2))
        return max(0.0, others / elapsed) if elapsed > 0 else None

    def _sample(self) -> tuple[float, float] | None:
        """Seconds that have gone by, and processor seconds of others; see proc(5) for the fields of /proc/stat."""
        fields = read_fields(self._root / "proc/stat")[1:9]
        if len(fields) < 8:
            return None
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields)
        all_busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        return self._clock(), all_busy - _our_seconds(self._root)


def _our_seconds(root: Path) -> float:
    """Processor seconds of this process and its children, ended ones included."""
    times = os.times()
    ended = times.user + times.system + times.children_user + times.children_system
    ticks = sum(sum(map(int, fields[11:13])) for fields in _children(root))
    return ended + ticks / os.sysconf("SC_CLK_TCK")


def _children(root: Path) -> Sequence[list[str]]:
    """Fields of /proc/PID/stat, from the third on, of our living children; the name before them may hold anything."""
    found = []
    for folder in (root / "proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if len(fields) > 12 and int(fields[1]) == os.getpid():
            found.append(fields)
    return found


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 2)
