"""The plans, and the script of the session on the starter model's tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.compare.scenarios import SESSION, Part, Session, make_plan, raw_tests
from app.compare.session_text import SYSTEM
from engine.messages import ChatMessage, Role
from engine.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(starter_path: Path) -> Tokenizer:
    return Tokenizer(str(starter_path))


def messages(session: Session, name: str) -> list[tuple[str, str]]:
    """Role and text of what is sent at a step, after the system message."""
    step = next(step for step in SESSION if step.name == name)
    prompt = session.request(step, {step.name: f"answer to {step.name}" for step in SESSION}).prompt
    assert isinstance(prompt, tuple)
    system, *turns = prompt
    assert system == ChatMessage(Role.SYSTEM, SYSTEM)
    return [(turn.role, turn.content) for turn in turns]


def test_the_session_does_all_that_people_do() -> None:
    session = Session(SESSION, 32)
    turn_6, regenerated = messages(session, "turn 6"), messages(session, "regenerate")
    assert turn_6 == regenerated
    assert len(turn_6) == 11
    assert [text for role, text in turn_6 if role == Role.ASSISTANT] == [f"answer to turn {i}" for i in range(1, 6)]
    edited, turn_2 = messages(session, "edit turn 2"), messages(session, "turn 2")
    assert edited[:2] == turn_2[:2]
    assert edited[2] != turn_2[2]
    branch = messages(session, "branch")
    assert branch[:8] == turn_6[:8]
    assert branch[8] != turn_6[8]
    assert len(messages(session, "second chat")) == 1
    assert messages(session, "switch back")[:9] == branch
    assert messages(session, "four answers")[:11] == messages(session, "switch back")
    assert messages(session, "quit, come back")[:1] == messages(session, "second chat")


def test_steps_build_on_steps_before_them() -> None:
    names = [step.name for step in SESSION]
    assert len(set(names)) == len(names)
    for index, step in enumerate(SESSION):
        assert step.after is None or step.after in names[:index]
    assert [step.name for step in SESSION if step.quits_first] == names[-1:]
    assert [step.n for step in SESSION if step.n > 1] == [4]


def test_only_several_answers_are_drawn() -> None:
    session = Session(SESSION, 32)
    for step in SESSION:
        request = session.request(step, {each.name: "a" for each in SESSION})
        assert (request.sampling.temperature == 0) == (step.n == 1) == step.is_greedy
        assert step.is_greedy or request.sampling.seed is not None
        assert request.owner == step.chat


@pytest.mark.parametrize("full", [False, True])
def test_the_session_fits_the_window_it_is_planned_for(tokenizer: Tokenizer, full: bool) -> None:
    assert make_plan(1, 2, full=full, only=None).session is None
    context = next(n for n in range(256, 8193, 256) if make_plan(n, 2, full=full, only=None).session)
    session = make_plan(context, 2, full=full, only=None).session
    assert session is not None
    longest = "word " * session.answer_tokens
    for step in session.steps:
        prompt = session.request(step, {each.name: longest for each in session.steps}).prompt
        assert isinstance(prompt, tuple)
        n_tokens = len(tokenizer.encode_chat(prompt).token_ids)
        assert n_tokens + session.answer_tokens < context
        assert n_tokens > 600


def test_a_window_too_small_for_the_session_is_said() -> None:
    plan = make_plan(1024, 2, full=False, only=None)
    assert plan.session is None
    assert plan.notes == ("The session was left out: it needs a window of 1,536 tokens, and this one has 1,024.",)
    assert plan.raw


def test_quick_and_full_tests() -> None:
    assert [test.name for test in raw_tests(8192, full=False)] == ["pp512 @ d0", "tg64 @ d0", "tg64 @ d512"]
    full = [test.name for test in raw_tests(8192, full=True)]
    assert full == [f"{kind} @ d{depth}" for depth in (0, 512, 2048, 4096) for kind in ("pp512", "tg64")]
    assert [t.name for t in raw_tests(32768, full=True)][-1] == "tg64 @ d16384"
    assert [t.name for t in raw_tests(300, full=True)] == ["tg64 @ d0"]
    assert all(test.depth % 16 == 0 for test in raw_tests(131072, full=True))


def test_parts() -> None:
    quick, full = make_plan(8192, 2, full=False, only=None), make_plan(8192, 2, full=True, only=None)
    assert quick.session
    assert quick.raw
    assert not quick.batch
    assert [test.n_sequences for test in full.batch] == [1, 2, 4, 8]
    for part in Part:
        plan = make_plan(8192, 2, full=False, only=part)
        assert [bool(plan.raw), bool(plan.session), bool(plan.batch)] == [part is each for each in Part]
