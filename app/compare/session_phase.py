"""The session of a single user, played by every lane step by step.

Each lane keeps its own cache, and all get the same prompts: what stands in them as earlier answers are those of the
reference, the first lane that answered. Where another lane's own answer differs, its cache holds its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from app.compare.crew import Crew, Entrant, Stage, slower_variants
from app.compare.events import AnswerText, Measured
from app.compare.lanes import Answer, LaneMemory, Variant
from app.compare.logit_gap import GapCase
from app.compare.record import Difference, StepSample
from app.compare.scenarios import GREEDY, Session, Step
from engine.messages import ChatMessage, Role, TextRequest

_WARM_UP = (ChatMessage(Role.SYSTEM, "Warming up."), ChatMessage(Role.USER, "Count to a hundred."))


class Reference:
    """The reference's answers, by the name of the step; kept over the repeats, and from one crew to the next."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    @property
    def texts(self) -> dict[str, str]:
        """What stands in prompts."""
        return {name: answer.texts[0] for name, answer in self.answers.items()}


class SessionPhase:
    """Plays sessions with a crew. gap_cases: for each of the record's differences, how its gap can be measured."""

    def __init__(self, stage: Stage, session: Session) -> None:
        self._stage = stage
        self._session = session
        self._reference = Reference()
        self.gap_cases: list[GapCase | None] = []
        self._seconds: defaultdict[Entrant[Variant], float] = defaultdict(float)
        """That the user waited for a variant's answers."""

    def run(self, crew: Crew[Variant]) -> None:
        """All repeats; each begins with an empty cache. After the first, only the faster variant of a lane goes on.

        Raises NobodyLeft, Stop or Skip.
        """
        repeat = 0
        while repeat < self._stage.control.repeat:
            for entrant in crew.in_turn(repeat):
                if repeat:
                    crew.reload(entrant, "", entrant.variant.forget)
                self._warm_up(crew, entrant)
            for index, step in enumerate(self._session.steps):
                self._play(crew, step, index, repeat)
                n_steps = len(self._session.steps)
                self._stage.advance((repeat * n_steps + index + 1) / (self._stage.control.repeat * n_steps))
            repeat += 1
            if repeat == 1 and self._stage.control.repeat > 1:
                for entrant in slower_variants({entrant: self._seconds[entrant] for entrant in crew.fit}):
                    crew.rest(entrant)

    def _warm_up(self, crew: Crew[Variant], entrant: Entrant[Variant]) -> None:
        if entrant in crew.fit:
            request = TextRequest(_WARM_UP, GREEDY, max_tokens=8)
            crew.attempt(entrant, "warm-up", partial(self._ask, entrant, request, lambda _: None))

    def _play(self, crew: Crew[Variant], step: Step, index: int, repeat: int) -> None:
        """Let everyone do a step, and see whose answer differs."""
        survived: dict[Entrant[Variant], bool] = {}
        if step.quits_first:
            for entrant in crew.fit:
                kept = crew.reload(entrant, step.name, entrant.variant.quit_and_come_back)
                if kept is not None:
                    survived[entrant] = kept
        in_turn = crew.in_turn(index + repeat)
        request = self._session.request(step, self._reference.texts)
        answers: dict[Entrant[Variant], Answer] = {}
        for entrant in in_turn:
            self._stage.control.check()
            self._stage.announce(crew.phase, step.name, entrant, repeat)
            show = partial(self._show, entrant)
            answer = crew.attempt(entrant, step.name, partial(self._ask, entrant, request, show))
            if answer is None:
                continue
            answers[entrant] = answer
            self._seconds[entrant] += answer.user.end_s
            memory = crew.attempt(entrant, step.name, entrant.variant.memory)
            sample = _sample(step, entrant, repeat, answer, memory, survived.get(entrant))
            self._stage.record.session.append(sample)
            self._stage.on_event(Measured(sample))
        if step.is_greedy:
            in_order = [entrant for entrant in crew.fit if entrant in answers]
            self._compare(step, request, [(entrant, answers[entrant]) for entrant in in_order])

    def _compare(self, step: Step, request: TextRequest, answers: Sequence[tuple[Entrant[Variant], Answer]]) -> None:
        """Note the answers that differ from the reference's, each only the first time."""
        noted = {(each.step, each.lane, each.variant) for each in self._stage.record.differences}
        for entrant, answer in answers:
            reference = self._reference.answers.setdefault(step.name, answer)
            key = step.name, entrant.lane, entrant.variant.name
            found = _first_difference(reference, answer)
            if found and key not in noted:
                self._stage.record.differences.append(Difference(*key, **found._asdict()))
                self.gap_cases.append(_gap_case(request, reference, found))

    def _ask(self, entrant: Entrant[Variant], request: TextRequest, on_text: Callable[[str], object]) -> Answer:
        return entrant.variant.ask(request, on_text, self._stage.control.wanted)

    def _show(self, entrant: Entrant[Variant], text: str) -> None:
        self._stage.on_event(AnswerText(entrant.lane, entrant.variant.name, text))


class _Found(NamedTuple):
    """The last fields of a Difference, but for the gap."""

    position: int
    token: int | None
    reference_token: int | None


def _first_difference(reference: Answer, answer: Answer) -> _Found | None:
    """None where the answers are the same, or one of the lanes does not tell its tokens."""
    if not (reference.token_ids and answer.token_ids):
        return None
    ours, theirs = answer.token_ids[0], reference.token_ids[0]
    shorter = min(len(ours), len(theirs))
    position = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
    if position == len(ours) == len(theirs):
        return None
    tokens = (ids[position] if position < len(ids) else None for ids in (ours, theirs))
    return _Found(position, *tokens)


def _gap_case(request: TextRequest, reference: Answer, found: _Found) -> GapCase | None:
    if found.token is None or found.reference_token is None:
        return None
    before = reference.token_ids[0][: found.position]
    return GapCase(request, before, found.token, found.reference_token)


def _sample(
    step: Step,
    entrant: Entrant[Variant],
    repeat: int,
    answer: Answer,
    memory: LaneMemory | None,
    survived: bool | None,
) -> StepSample:
    return StepSample(
        step=step.name,
        lane=entrant.lane,
        variant=entrant.variant.name,
        repeat=repeat,
        answers=step.n,
        tells_tokens=bool(answer.token_ids),
        generated_tokens=answer.generated_tokens,
        user=answer.user,
        engine=answer.engine,
        prefill_s=answer.prefill_s,
        prompt_tokens=answer.prompt_tokens,
        reused_tokens=answer.reused_tokens,
        computed_tokens=answer.computed_tokens,
        guessed_tokens=answer.guessed_tokens,
        memory=memory,
        cache_survived=survived,
    )
