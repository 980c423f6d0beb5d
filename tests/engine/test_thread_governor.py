"""Threads are given up while a core is taken, and come back, on machines whose times are known."""

from __future__ import annotations

from collections.abc import Callable

from engine.thread_governor import LONGEST_WAIT, TRIAL, ThreadGovernor


def run(governor: ThreadGovernor, n: int, seconds: Callable[[int], float]) -> list[int]:
    """`n` decodes on a machine where one takes so many seconds on so many threads; the threads of each."""
    used = []
    for _ in range(n):
        used.append(governor.n_threads)
        governor.observe(seconds(governor.n_threads))
    return used


def idle(n_threads: int) -> float:
    return 0.080 / n_threads


def one_core_taken_of(cores: int) -> Callable[[int], float]:
    """With a thread on every core, all wait for the one that has no core of its own."""
    return lambda n_threads: 0.080 / n_threads * (5 if n_threads >= cores else 1.1)


def test_an_idle_machine_keeps_all_threads() -> None:
    assert set(run(ThreadGovernor(2), 500, idle)) == {2}


def test_ordinary_noise_changes_nothing() -> None:
    noise = iter(1 + 0.15 * (i * 7 % 11 - 5) / 5 for i in range(500))
    assert set(run(ThreadGovernor(2), 500, lambda n: idle(n) * next(noise))) == {2}


def test_one_thread_fewer_while_a_core_is_taken() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, idle)
    used = run(governor, 500, one_core_taken_of(2))
    assert used[0] == 2
    assert used[1:5] == [1, 1, 1, 1]
    assert used.count(2) <= 12


def test_all_threads_come_back() -> None:
    governor = ThreadGovernor(2)
    run(governor, 50, idle)
    run(governor, 500, one_core_taken_of(2))
    used = run(governor, LONGEST_WAIT + 10, idle)
    assert used[-10:] == [2] * 10


def test_several_cores_taken() -> None:
    """Three of eight cores are taken: six and more threads are slow, five are not."""
    governor = ThreadGovernor(8)
    run(governor, 50, idle)
    used = run(governor, 500, lambda n: 0.080 / n * (5 if n > 5 else 1.1))
    assert used.count(5) > 400


def test_more_work_is_not_mistaken_for_a_busy_machine() -> None:
    """Another chat, four times as deep, costs one trial on fewer threads."""
    governor = ThreadGovernor(2)
    run(governor, 50, idle)
    used = run(governor, 200, lambda n: 4 * idle(n))
    assert used.count(1) == TRIAL


def test_one_thread_stays() -> None:
    governor = ThreadGovernor(1)
    run(governor, 50, idle)
    assert set(run(governor, 100, lambda n: 10 * idle(n))) == {1}
