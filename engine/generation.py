"""Text in, text out, over an engine that knows only token ids.

Owns the way from a TextRequest to a Request (chat template, tokenizer) and from the engine's
events back to text (streaming detokeniser, stop strings).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from engine.detokenizer import Detokenizer
from engine.errors import StepFailed
from engine.interface import Engine
from engine.interface import Event as EngineEvent
from engine.messages import Failed, Finished, Notice, TextDelta, TextEvent, TextRequest, TokenPrompt
from engine.sequence import FinishReason, PrefillEvent, Request, TokenEvent
from engine.survey import PoolSurvey
from engine.tokenizer import ChatPrompt, Tokenizer

NO_TEMPLATE = "This model has no chat template, so it continues your text instead of answering it."


@dataclass
class _Answer:
    """One answer while it is being generated."""

    detokenizer: Detokenizer
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)


@dataclass
class _Running:
    """A request in the engine."""

    request_id: int
    answers: dict[int, _Answer]


class TextGeneration:
    """Requests in words, running on one engine. Not thread-safe, like the engine."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._running: dict[int, _Running] = {}  # by the engine's id
        self._said_no_template = False

    def submit(self, request_id: int, request: TextRequest) -> list[TextEvent]:
        """Start a request; its events carry `request_id`.

        Raises PromptError when the prompt does not fit the context or the template refuses the messages.
        """
        events: list[TextEvent] = []
        prompt = prompt_of(request, self._tokenizer)
        is_chat = isinstance(request.prompt, tuple)
        if is_chat and self._tokenizer.chat_template is None and not self._said_no_template:
            events.append(Notice(request_id, NO_TEMPLATE))
            self._said_no_template = True
        answers = {index: _Answer(Detokenizer(self._tokenizer, request.stop)) for index in range(request.n)}
        engine_id = self._engine.submit(
            Request(
                prompt=prompt.token_ids,
                sampling=request.sampling,
                max_tokens=request.max_tokens,
                stop_tokens=frozenset() if isinstance(request.prompt, TokenPrompt) else self._tokenizer.stop_tokens,
                priority=request.priority,
                n=request.n,
                owner=request.owner,
            )
        )
        self._running[engine_id] = running = _Running(request_id, answers)
        if not request.continued:
            for index in answers:
                events += self._emit(running, index, prompt.opening)
        return events

    def count_tokens(self, request: TextRequest) -> int:
        """Tokens of the prompt. Raises PromptError when the template refuses the messages."""
        return len(prompt_of(request, self._tokenizer).token_ids)

    def survey(self) -> PoolSurvey:
        """KV memory now, block by block."""
        return self._engine.survey()

    def has_work(self) -> bool:
        """Whether `step` would do something."""
        return self._engine.has_work()

    def step(self) -> list[TextEvent]:
        """Run the engine for one step and return what it produced, as text; requests may fail, the engine goes on."""
        try:
            return self._as_text(self._engine.step())
        except StepFailed as error:
            failed = [self._running.pop(engine_id) for engine_id in error.request_ids & self._running.keys()]
            return [Failed(running.request_id, error.reason) for running in failed]

    def interrupt(self) -> None:
        """Stop the step that runs, or else the next one; it produces nothing. Any thread may call this."""
        self._engine.interrupt()

    def cancel(self, request_id: int, index: int | None = None) -> list[TextEvent]:
        """End all answers of a request, or one of them, with what they have so far. Unknown ids are ignored."""
        for engine_id, running in self._running.items():
            if running.request_id == request_id:
                return self._as_text(self._engine.cancel(engine_id, index))
        return []

    def _as_text(self, events: list[EngineEvent]) -> list[TextEvent]:
        return [text_event for event in events for text_event in self._translate(event)]

    def _translate(self, event: EngineEvent) -> list[TextEvent]:
        running = self._running.get(event.request_id)
        if running is None:
            return []
        if isinstance(event, PrefillEvent):
            return [event._replace(request_id=running.request_id)]
        answer = running.answers.get(event.index)
        if answer is None:
            return []  # it ended at a stop string, a few tokens ago in this same step
        texts: list[TextEvent] = []
        stopped_before = answer.detokenizer.stopped
        if event.token_id is not None and not stopped_before:
            answer.token_ids.append(event.token_id)
            texts += self._emit(running, event.index, answer.detokenizer.push(event.token_id))
        if event.finish is not None:
            texts += self._finish(running, event)
        elif answer.detokenizer.stopped and not stopped_before:
            texts += self._as_text(self._engine.cancel(event.request_id, event.index))
        return texts

    def _emit(self, running: _Running, index: int, text: str) -> list[TextEvent]:
        if not text:
            return []
        running.answers[index].pieces.append(text)
        return [TextDelta(running.request_id, index, text)]

    def _finish(self, running: _Running, event: TokenEvent) -> list[TextEvent]:
        assert event.finish is not None
        assert event.stats is not None
        answer = running.answers[event.index]
        texts = self._emit(running, event.index, answer.detokenizer.finish())
        reason = FinishReason.STOP if answer.detokenizer.stopped else event.finish
        texts.append(
            Finished(
                request_id=running.request_id,
                index=event.index,
                text="".join(answer.pieces),
                token_ids=tuple(answer.token_ids),
                reason=reason,
                stats=replace(
                    event.stats,
                    generated_tokens=len(answer.token_ids),
                    accepted_tokens=min(event.stats.accepted_tokens, len(answer.token_ids)),
                ),
                kv=self._engine.kv_stats(),
            )
        )
        del running.answers[event.index]
        if not running.answers:
            del self._running[event.request_id]
        return texts


def prompt_of(request: TextRequest, tokenizer: Tokenizer) -> ChatPrompt:
    """What the engine gets to see. Raises PromptError when the template refuses the messages."""
    if isinstance(request.prompt, TokenPrompt):
        return ChatPrompt(request.prompt.token_ids, "")
    if isinstance(request.prompt, str):
        return ChatPrompt(tokenizer.encode_raw(request.prompt + request.continued), "")
    if tokenizer.chat_template is not None:
        return tokenizer.encode_chat(request.prompt, thinking=request.thinking, continued=request.continued)
    text = "\n\n".join(message.content for message in request.prompt)
    return ChatPrompt(tokenizer.encode_raw(text + request.continued), "")
