"""What is compared: tests of raw speed, and the session of a single user as a script. Plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from app.compare.lanes import BatchTest
from app.compare.session_text import QUESTIONS, SYSTEM
from engine.messages import ChatMessage, Role, TextRequest
from engine.sequence import SamplingParams

GREEDY = SamplingParams(temperature=0)
_SEEDED = SamplingParams(temperature=0.8, seed=1)
"""For several answers to one question, which greedily would all be the same."""

PREFILL, DECODE = 512, 64
"""Tokens of a test: pp512 and tg64."""

_DEPTHS = (0, 512, 2048, 4096)
"""From there on they double, up to the window."""


class RawTest(NamedTuple):
    """Compute `n_tokens` tokens after `depth` known ones: of a prompt together, or one by one when `decodes`.

    Depths are multiples of 16, the paged engine's block, so that what is known is known to the token.
    """

    n_tokens: int
    depth: int
    decodes: bool

    @property
    def name(self) -> str:
        """As llama-bench writes it."""
        return f"{'tg' if self.decodes else 'pp'}{self.n_tokens} @ d{self.depth}"


@dataclass(frozen=True)
class Step:
    """One request of a session. after: the step whose answer it follows; None begins a chat.

    chat: number of the chat it belongs to. n: answers. quits_first: the user leaves the program and comes back.
    """

    name: str
    question: str
    after: str | None
    chat: int = 1
    n: int = 1
    quits_first: bool = False

    @property
    def is_greedy(self) -> bool:
        """Whether the answer should be the same, token by token, in every lane."""
        return self.n == 1


SESSION = (
    *(Step(f"turn {i + 1}", question, f"turn {i}" if i else None) for i, question in enumerate(QUESTIONS.turns)),
    Step("regenerate", QUESTIONS.turns[5], "turn 5"),
    Step("edit turn 2", QUESTIONS.edited, "turn 1"),
    Step("branch", QUESTIONS.branch, "turn 4"),
    Step("second chat", QUESTIONS.second_chat, None, chat=2),
    Step("switch back", QUESTIONS.back, "branch"),
    Step("four answers", QUESTIONS.four, "switch back", n=4),
    Step("quit, come back", QUESTIONS.return_, "second chat", quits_first=True),
)
"""Long system prompt, six turns, and all that people do in a chat. A step's `after` comes before it."""


class Session(NamedTuple):
    """Steps, and the longest answer to each in tokens."""

    steps: tuple[Step, ...]
    answer_tokens: int

    def request(self, step: Step, answers: Mapping[str, str]) -> TextRequest:
        """answers: the reference's, by the name of the step."""
        by_name = {each.name: each for each in self.steps}
        turns: list[ChatMessage] = []
        before = step.after
        while before is not None:
            turn = ChatMessage(Role.USER, by_name[before].question), ChatMessage(Role.ASSISTANT, answers[before])
            turns = [*turn, *turns]
            before = by_name[before].after
        messages = (ChatMessage(Role.SYSTEM, SYSTEM), *turns, ChatMessage(Role.USER, step.question))
        sampling = GREEDY if step.is_greedy else _SEEDED
        return TextRequest(messages, sampling, self.answer_tokens, n=step.n, owner=step.chat)


class Part(enum.StrEnum):
    """What can be measured alone."""

    RAW = "raw"
    SESSION = "session"
    BATCH = "batch"


@dataclass(frozen=True)
class Plan:
    """Everything that a comparison does. session: None leaves it out. repeat: how often the session is played.

    notes: sentences on what was left out.
    """

    session: Session | None
    raw: tuple[RawTest, ...]
    batch: tuple[BatchTest, ...]
    repeat: int
    notes: tuple[str, ...] = ()


_QUICK_ANSWER, _FULL_ANSWER = 32, 128
_SESSION_WINDOW = {_QUICK_ANSWER: 1536, _FULL_ANSWER: 2560}
"""Tokens that the longest prompt and answer of a session take at most, by the length of answers."""


def make_plan(context: int, repeat: int, *, full: bool, only: Part | None) -> Plan:
    """What a window of `context` tokens has room for. A quick plan has batches only when they are asked for."""
    answer_tokens = _FULL_ANSWER if full else _QUICK_ANSWER
    window = _SESSION_WINDOW[answer_tokens]
    notes = []
    session = Session(SESSION, answer_tokens) if only in (None, Part.SESSION) else None
    if session and context < window:
        notes.append(f"The session was left out: it needs a window of {window:,} tokens, and this one has {context:,}.")
        session = None
    return Plan(
        session,
        raw_tests(context, full=full) if only in (None, Part.RAW) else (),
        batch_tests(full=full) if only is Part.BATCH or (full and only is None) else (),
        repeat,
        tuple(notes),
    )


_QUICK_TESTS = (
    RawTest(PREFILL, 0, decodes=False),
    RawTest(DECODE, 0, decodes=True),
    RawTest(DECODE, 512, decodes=True),
)
"""Prompts take long, and at depth 0 they show what there is to see."""


def raw_tests(context: int, *, full: bool) -> tuple[RawTest, ...]:
    """Tests that a window of `context` tokens has room for."""
    depths = list(_DEPTHS)
    while depths[-1] * 2 < context:
        depths.append(depths[-1] * 2)
    all_tests = tuple(
        RawTest(DECODE if decodes else PREFILL, depth, decodes) for depth in depths for decodes in (False, True)
    )
    tests = all_tests if full else _QUICK_TESTS
    return tuple(test for test in tests if test.depth + test.n_tokens + 1 < context)


def batch_tests(*, full: bool) -> tuple[BatchTest, ...]:
    """One to eight sequences."""
    depth, n_tokens = (512, 64) if full else (64, 32)
    return tuple(BatchTest(n, depth, n_tokens) for n in (1, 2, 4, 8))
