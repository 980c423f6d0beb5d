"""What a comparison notes about the machine and the model."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.compare.machine import LoadMeter, machine_facts, model_facts, process_bytes
from engine.threads import usable_processors
from models.inspect import inspect_model

TICKS = os.sysconf("SC_CLK_TCK")


class FakeSystem:
    """A /proc whose processors have been busy for as many seconds as the test says, and a clock beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 0.0
        (root / "proc").mkdir()
        self.let_pass(0, busy=1000)

    def let_pass(self, seconds: float, busy: float) -> None:
        """busy: processor seconds since the start, in all programs and by the hypervisor."""
        self.now += seconds
        share = round(busy * TICKS / 4)
        (self.root / "proc/stat").write_text(f"cpu  {share} {share} {share} 999999 50 0 0 {share} 0 0\ncpu0 1 2 3\n")

    def meter(self) -> LoadMeter:
        return LoadMeter(self.root, lambda: self.now)


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    return FakeSystem(tmp_path)


def test_others_that_are_busy(system: FakeSystem) -> None:
    meter = system.meter()
    system.let_pass(2, busy=1001)
    meter.rest(0)
    system.let_pass(10, busy=1004)
    busy = meter.read()
    assert busy.others_before == pytest.approx(0.5, abs=0.1)
    assert busy.others_during == pytest.approx(0.3, abs=0.05)
    assert busy.is_busy is (busy.others_before > 0.1 * usable_processors())


def test_an_idle_machine(system: FakeSystem) -> None:
    meter = system.meter()
    system.let_pass(1, busy=1000)
    meter.rest(0)
    system.let_pass(100, busy=1001)
    busy = meter.read()
    assert busy.others_during == pytest.approx(0.01, abs=0.01)
    assert busy.is_busy is False


def test_our_own_work_and_that_of_children_is_not_counted() -> None:
    """On the real machine: two processes compute as hard as they can."""
    if not Path("/proc/stat").exists():
        pytest.skip("there is no /proc/stat")
    meter = LoadMeter()
    before = _all_busy()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        during = meter.read().others_during
    finally:
        child.kill()
        child.wait()
    all_busy = (_all_busy() - before) / 0.5
    assert during is not None
    assert during < all_busy - 0.5


def _all_busy() -> float:
    fields = list(map(int, Path("/proc/stat").read_text().split()[1:9]))
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def test_without_proc_the_load_average_is_all_there_is(tmp_path: Path) -> None:
    meter = LoadMeter(tmp_path)
    meter.rest()
    busy = meter.read()
    assert busy.others_before == pytest.approx(os.getloadavg()[0], abs=1)
    assert busy.others_during is None


def test_the_model_is_hashed(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model()
    fractions: list[float] = []
    facts = model_facts(inspect_model((path,)), fractions.append)
    assert facts.sha256 == (hashlib.sha256(path.read_bytes()).hexdigest(),)
    assert facts.n_bytes == path.stat().st_size
    assert facts.architecture == "llama"
    assert fractions[-1] == pytest.approx(1, abs=0.05)


def test_the_machine() -> None:
    facts = machine_facts("CPU")
    assert facts.device == "CPU"
    assert facts.processor
    assert facts.llama_cpp_python == "0.3.36"


def test_the_memory_of_another_process() -> None:
    script = "data = b'x' * (50 << 20); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        resident = process_bytes(process.pid)
        process.kill()
    assert resident is not None
    assert 50 << 20 < resident < 90 << 20
    assert process_bytes(None) is None
