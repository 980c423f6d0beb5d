"""Text from an engine's events: whatever a step holds, the text is cut at the stop string and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import KvType
from engine.errors import DeviceError, StepFailed
from engine.generation import TextGeneration
from engine.interface import Event
from engine.messages import ChatMessage, Failed, Finished, TextDelta, TextEvent, TextRequest, TokenPrompt
from engine.sequence import FinishReason, KvStats, Request, SequenceStats, TokenEvent
from engine.survey import PoolSurvey
from engine.tokenizer import Tokenizer
from tests.tiny_gguf import write_tiny

STATS = SequenceStats(1, 0, 1, 1, 0.1, 0.1, 0.1, 1)


class ScriptedEngine:
    """An Engine whose answers are given, and which may produce several tokens of each in a step.

    scripts: tokens of each answer, by index. end_with_token: whether the last token says that it is the last.
    """

    name = "scripted"
    context = 1000

    def __init__(self, scripts: list[list[int]], tokens_per_step: int, *, end_with_token: bool) -> None:
        self.scripts = dict(enumerate(scripts))
        self.tokens_per_step = tokens_per_step
        self.end_with_token = end_with_token

    def submit(self, request: Request) -> int:
        assert request.n == len(self.scripts)
        return 41

    def step(self) -> list[Event]:
        events: list[Event] = []
        for index, script in list(self.scripts.items()):
            for _ in range(min(self.tokens_per_step, len(script))):
                token = script.pop(0)
                if script or not self.end_with_token:
                    events.append(TokenEvent(41, index, token))
                else:
                    events.append(TokenEvent(41, index, token, FinishReason.LENGTH, STATS))
            if not script:
                del self.scripts[index]
                if not self.end_with_token:
                    events.append(TokenEvent(41, index, None, FinishReason.LENGTH, STATS))
        return events

    def cancel(self, request_id: int, index: int | None = None) -> list[Event]:
        ended = [i for i in self.scripts if index in (None, i)]
        for i in ended:
            del self.scripts[i]
        return [TokenEvent(request_id, i, None, FinishReason.CANCELLED, STATS) for i in ended]

    def has_work(self) -> bool:
        return bool(self.scripts)

    def interrupt(self) -> None:
        pass

    def survey(self) -> PoolSurvey:
        return PoolSurvey(self.kv_stats())

    def kv_stats(self) -> KvStats:
        return KvStats(16, 1, 1, 0, 0, 0, 1, 1, KvType.F16, KvType.F16)

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokenizer]:
    tokenizer = Tokenizer(str(write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", tokenizer="gpt2")))
    yield tokenizer
    tokenizer.close()


def cut(text: str, stop: tuple[str, ...]) -> tuple[str, FinishReason]:
    """The text before the stop string that is complete first, the longest if several are: character by character."""
    for end in range(len(text) + 1):
        met = [word for word in stop if text[:end].endswith(word)]
        if met:
            return text[: end - max(map(len, met))], FinishReason.STOP
    return text, FinishReason.LENGTH


def run(generation: TextGeneration) -> list[TextEvent]:
    events: list[TextEvent] = []
    while generation.has_work():
        events += generation.step()
    return events


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    texts=st.lists(st.text(alphabet="ab é😀", min_size=1, max_size=12), min_size=1, max_size=3),
    stop=st.lists(st.text(alphabet="ab é😀", min_size=1, max_size=3), max_size=3),
    tokens_per_step=st.integers(1, 4),
    end_with_token=st.booleans(),
)
def test_text_is_cut_at_the_first_stop_string(
    tokenizer: Tokenizer, texts: list[str], stop: list[str], tokens_per_step: int, end_with_token: bool
) -> None:
    scripts = [list(tokenizer.encode_raw(text)) for text in texts]
    engine = ScriptedEngine(scripts, tokens_per_step, end_with_token=end_with_token)
    generation = TextGeneration(engine, tokenizer)
    events = generation.submit(7, TextRequest("ask", stop=tuple(stop), n=len(texts))) + run(generation)

    assert all(event.request_id == 7 for event in events)
    for index, text in enumerate(texts):
        own = [event for event in events if isinstance(event, TextDelta | Finished) and event.index == index]
        finished = own.pop()
        assert isinstance(finished, Finished)
        assert (finished.text, finished.reason) == cut(text, tuple(stop))
        assert finished.stats.generated_tokens == len(finished.token_ids)
        deltas = [event.text for event in own if isinstance(event, TextDelta)]
        assert len(deltas) == len(own)
        assert all(deltas)
        assert "".join(deltas) == finished.text
        but_the_last = b"".join(map(tokenizer.piece, finished.token_ids[:-1])).decode(errors="ignore")
        assert not any(word in but_the_last for word in stop)


def test_a_step_that_fails_ends_its_requests_and_no_other(tokenizer: Tokenizer) -> None:
    class FailingEngine(ScriptedEngine):
        def step(self) -> list[Event]:
            raise StepFailed(DeviceError("It is broken."), frozenset([41]))

    generation = TextGeneration(FailingEngine([[1, 2]], 1, end_with_token=False), tokenizer)
    generation.submit(7, TextRequest("ask"))
    [failed] = generation.step()
    assert isinstance(failed, Failed)
    assert (failed.request_id, str(failed.error)) == (7, "It is broken.")
    assert isinstance(failed.error, DeviceError)
    assert generation.cancel(7) == []


def test_what_the_template_has_opened_belongs_to_the_answer(tmp_path: Path) -> None:
    path = write_tiny(
        tmp_path / "thinks.gguf", tokenizer="gpt2", chat_template="{{ messages[0].content + '<think>\\n' }}"
    )
    tokenizer = Tokenizer(str(path))
    chat = (ChatMessage("user", "hi"),)
    script = list(tokenizer.encode_raw("so"))
    generation = TextGeneration(ScriptedEngine([script], 1, end_with_token=False), tokenizer)
    finished = (generation.submit(7, TextRequest(chat)) + run(generation))[-1]
    assert isinstance(finished, Finished)
    assert finished.text == "<think>\nso"
    script = list(tokenizer.encode_raw("so"))
    generation = TextGeneration(ScriptedEngine([script], 1, end_with_token=False), tokenizer)
    finished = (generation.submit(7, TextRequest(chat, continued="<think>\nwell, ")) + run(generation))[-1]
    assert isinstance(finished, Finished)
    assert finished.text == "so"
    assert generation.count_tokens(TextRequest(chat, continued="<think>\nwell, ")) == len(
        tokenizer.encode_raw("hi<think>\nwell, ")
    )
    tokenizer.close()


def test_a_prompt_of_tokens_has_no_end_but_its_length(tokenizer: Tokenizer) -> None:
    asked: list[Request] = []

    class ListeningEngine(ScriptedEngine):
        def submit(self, request: Request) -> int:
            asked.append(request)
            return super().submit(request)

    ask = TextRequest(TokenPrompt((5, 6, 7)), max_tokens=2)
    generation = TextGeneration(ListeningEngine([[1, 2]], 1, end_with_token=True), tokenizer)
    generation.submit(7, ask)
    assert (asked[0].prompt, asked[0].stop_tokens) == ((5, 6, 7), frozenset())
    assert generation.count_tokens(ask) == 3


def test_the_engine_computes_nothing_after_a_stop_string(tokenizer: Tokenizer) -> None:
    script = list(tokenizer.encode_raw("a" * 20 + "b" + "a" * 20))
    generation = TextGeneration(ScriptedEngine([script], 1, end_with_token=False), tokenizer)
    generation.submit(7, TextRequest("ask", stop=("b",)))
    run(generation)
    assert script == list(tokenizer.encode_raw("a" * 20))


def test_a_cancelled_answer_keeps_the_text_that_was_held_back(tokenizer: Tokenizer) -> None:
    script = list(tokenizer.encode_raw("abab"))
    generation = TextGeneration(ScriptedEngine([script], 1, end_with_token=False), tokenizer)
    generation.submit(7, TextRequest("ask", stop=("bb",)))
    before = generation.step() + generation.step()
    assert [event.text for event in before if isinstance(event, TextDelta)] == ["a"]
    delta, finished = generation.cancel(7)
    assert isinstance(delta, TextDelta)
    assert isinstance(finished, Finished)
    assert (delta.text, finished.text, finished.reason) == ("b", "ab", FinishReason.CANCELLED)
    assert generation.cancel(7) == []
    assert generation.cancel(8) == []
