"""Text from an engine's events: whatever a step holds, the text is cut at the stop string and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.generation import TextGeneration
from engine.interface import Event
from engine.messages import Finished, TextDelta, TextEvent, TextRequest
from engine.sequence import FinishReason, KvStats, Request, SequenceStats, TokenEvent
from engine.tokenizer import Tokenizer
from tests.tiny_gguf import write_tiny

STATS = SequenceStats(1, 0, 1, 1, 0.1, 0.1, 0.1)


class ScriptedEngine:
    """An Engine that answers with given tokens, several of them in a step, as an engine may."""

    name = "scripted"
    context = 1000

    def __init__(self, steps: list[list[int]], *, end_with_token: bool) -> None:
        self.steps = steps
        self.end_with_token = end_with_token
        self.live: set[int] = set()

    def submit(self, request: Request) -> int:
        self.live = set(range(request.n))
        return 41

    def step(self) -> list[Event]:
        events: list[Event] = [
            TokenEvent(41, index, token) for token in self.steps.pop(0) for index in sorted(self.live)
        ]
        if not self.steps:
            if self.end_with_token and events:
                events = [
                    event._replace(finish=FinishReason.LENGTH, stats=STATS)
                    if position >= len(events) - len(self.live)
                    else event
                    for position, event in enumerate(events)
                    if isinstance(event, TokenEvent)
                ]
            else:
                events += [TokenEvent(41, index, None, FinishReason.LENGTH, STATS) for index in sorted(self.live)]
            self.live = set()
        return events

    def cancel(self, request_id: int, index: int | None = None) -> list[Event]:
        ended = {i for i in self.live if index in (None, i)}
        self.live -= ended
        return [TokenEvent(request_id, i, None, FinishReason.CANCELLED, STATS) for i in sorted(ended)]

    def has_work(self) -> bool:
        return bool(self.live)

    def kv_stats(self) -> KvStats:
        return KvStats(16, 1, 0, 0, 1, 0, 1, 1, 1)

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


texts = st.text(alphabet="ab é😀", min_size=1, max_size=12)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    text=texts,
    stop=st.lists(st.text(alphabet="ab é😀", min_size=1, max_size=3), max_size=3),
    n=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    end_with_token=st.booleans(),
)
def test_text_is_cut_at_the_first_stop_string(
    tokenizer: Tokenizer, *, text: str, stop: list[str], n: int, sizes: list[int], end_with_token: bool
) -> None:
    tokens = list(tokenizer.encode_raw(text))
    steps = []
    while tokens:
        size = sizes[len(steps) % len(sizes)]
        steps.append(tokens[:size])
        tokens = tokens[size:]
    generation = TextGeneration(ScriptedEngine(steps, end_with_token=end_with_token), tokenizer)
    events = generation.submit(7, TextRequest("ask", stop=tuple(stop), n=n)) + run(generation)

    expected, reason = cut(text, tuple(stop))
    assert all(event.request_id == 7 for event in events)
    for index in range(n):
        own = [event for event in events if isinstance(event, TextDelta | Finished) and event.index == index]
        finished = own.pop()
        assert isinstance(finished, Finished)
        assert (finished.text, finished.reason) == (expected, reason)
        deltas = [event.text for event in own if isinstance(event, TextDelta)]
        assert len(deltas) == len(own)
        assert all(deltas)
        assert "".join(deltas) == expected


def test_a_cancelled_answer_keeps_the_text_that_was_held_back(tokenizer: Tokenizer) -> None:
    steps = [[token] for token in tokenizer.encode_raw("abab")]
    generation = TextGeneration(ScriptedEngine(steps, end_with_token=False), tokenizer)
    generation.submit(7, TextRequest("ask", stop=("bb",)))
    before = generation.step() + generation.step()
    assert [event.text for event in before if isinstance(event, TextDelta)] == ["a"]
    delta, finished = generation.cancel(7)
    assert isinstance(delta, TextDelta)
    assert isinstance(finished, Finished)
    assert (delta.text, finished.text, finished.reason) == ("b", "ab", FinishReason.CANCELLED)
    assert generation.cancel(7) == []
    assert generation.cancel(8) == []
