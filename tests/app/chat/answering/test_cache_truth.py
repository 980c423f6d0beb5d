"""No token is processed twice: a chat computes what nobody has computed before, and what it says is the same.

The starter model, greedy. Every request of every chat is checked: tokens reused are the longest beginning that it has
in common with any request before it and the answer to that; its answer is that of an engine that knows nothing.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from app.chat.conversation import MessageState
from app.chat.events import SessionEvent
from app.chat.open_chat import OpenChat
from app.chat.preferences.settings import ChatSettings
from app.chat.session import Session
from app.chat.storage.store import ChatStore
from engine.blocks import BLOCK_SIZE
from engine.messages import Role, TextRequest
from engine.sequence import FinishReason
from tests.app.chat.local_engine import LocalEngine
from tests.engine.recording import RecordingEngine

SETTINGS = ChatSettings(
    temperature=0, max_tokens=20, system="You are a helpful assistant who gives short and precise answers to all."
)
ROUNDING = 0.75
"""Distance in logits that rounding alone makes with the starter model's quantized weights."""
TURNS = (
    "Name three colours of the rainbow.",
    "Which of them is the warmest one?",
    "And which planet has that colour?",
    "How far away is it from the sun?",
    "Could people ever live there?",
    "What would they have to bring?",
)


@dataclass
class Desk:
    """A session whose work is done when the test says so."""

    session: Session
    engine: LocalEngine
    work: queue.SimpleQueue[Callable[[], None]]

    def settle(self) -> None:
        """Until every reply is complete."""
        while True:
            self.take_in()
            if not self.engine.step():
                self.take_in()  # the end of a reply may ask for something more
                if not self.engine.step() and self.work.empty():
                    return

    def take_in(self) -> None:
        """Let the engine and the session hear from each other."""
        running = self.session.host._current
        assert running is not None
        running.errands.submit(lambda: None).result()
        while not self.work.empty():
            self.work.get()()

    def say(self, chat: OpenChat, text: str) -> None:
        self.session.send(chat, text)
        self.settle()

    def texts(self, chat: OpenChat) -> list[str]:
        return [message.text for message in chat.conversation.path()]


@pytest.fixture
def desk(starter_path: Path, tmp_path: Path) -> Iterator[Desk]:
    work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    engine = LocalEngine(starter_path)
    events: list[SessionEvent] = []
    with ChatStore(tmp_path / "chats.db") as store:
        session = Session(store, SETTINGS, work.put, events.append, engine.open)
        yield Desk(session, engine, work)
        session.close()
    engine.free()


def new_chat(desk: Desk, settings: ChatSettings = SETTINGS) -> OpenChat:
    chat = desk.session.new_chat()
    desk.session.change_settings(chat, settings)
    desk.session.rename(chat, "No title is asked for")
    return chat


def check_reuse(engine: LocalEngine) -> list[tuple[int, int]]:
    """Compare each request with the arithmetic; returns tokens reused and computed of each."""
    known: list[tuple[int, ...]] = []
    result = []
    for request, finished in engine.answered:
        prompt = prompt_ids(engine, request)
        reused = max((n_common(prompt, before) for before in known), default=0)
        stats = finished.stats
        assert (stats.reused_tokens, stats.computed_tokens) == (reused, len(prompt) - reused)
        # The last token is not computed, unless it is followed by one that ends the answer.
        n_computed = len(finished.token_ids) - (finished.reason is not FinishReason.STOP)
        known.append((*prompt, *finished.token_ids[:n_computed]))
        result.append((stats.reused_tokens, stats.computed_tokens))
    return result


def prompt_ids(engine: LocalEngine, request: TextRequest) -> tuple[int, ...]:
    assert not isinstance(request.prompt, str)
    return engine.tokenizer.encode_chat(request.prompt, continued=request.continued).token_ids


def n_common(prompt: tuple[int, ...], before: tuple[int, ...]) -> int:
    """Tokens that both begin with; at least the last one of a prompt is computed."""
    limit = min(len(prompt) - 1, len(before))
    return next((i for i in range(limit) if prompt[i] != before[i]), limit)


def check_against_cold_runs(engine: LocalEngine, path: Path, first: int) -> int:
    """Every answer from `first` on is that of an engine that has computed nothing before; returns how many are.

    The others part where two tokens are as near to each other as the rounding of kernels for one row and for several.
    """
    n_equal = 0
    for request, finished in engine.answered[first:]:
        cold = LocalEngine(path)
        cold.submit(replace(request, owner=1), lambda _: None)
        while cold.step():
            pass
        [(_, answer)] = cold.answered
        cold.free()
        assert answer.stats.reused_tokens == 0
        n_equal += answer.text == finished.text
        if answer.text != finished.text:
            pairs = zip(answer.token_ids, finished.token_ids, strict=False)
            common = next(i for i, (a, b) in enumerate(pairs) if a != b)
            forced = (*prompt_ids(engine, request), *finished.token_ids[:common])
            recording = RecordingEngine(path, context=2048)
            request_id = recording.follow(forced, [0])
            recording.run()
            [logits] = recording.logits(request_id)
            recording.close()
            assert abs(logits[answer.token_ids[common]] - logits[finished.token_ids[common]]) < ROUNDING
    return n_equal


def test_regenerate_edit_and_branch(desk: Desk, starter_path: Path) -> None:
    chat = new_chat(desk)
    for turn in TURNS:
        desk.say(chat, turn)
    path = chat.conversation.path()
    assert [message.role for message in path] == [Role.USER, Role.ASSISTANT] * 6
    first_answers = desk.texts(chat)

    desk.session.regenerate(chat, path[-1].id)
    desk.settle()
    assert desk.texts(chat) == first_answers, "greedy"
    assert len(chat.conversation.siblings(path[-1].id)) == 2

    desk.session.edit(chat, path[2].id, "Which of them is the coldest one?")
    desk.settle()
    edited = chat.conversation.path()
    assert [message.text for message in edited[:3]] == [first_answers[0], first_answers[1], edited[2].text]
    assert len(edited) == 4

    assert desk.session.switch(chat, edited[2].id, -1), "back to the first branch"
    assert desk.texts(chat) == first_answers
    desk.say(chat, "Thank you for all of this.")

    reuse = check_reuse(desk.engine)
    regenerated, edit, back = reuse[6:9]
    assert regenerated[1] == 1, "all but the last token is known"
    assert edit[0] >= reuse[1][0] > 0, "what came before the edit"
    assert back[1] < 4 * BLOCK_SIZE, "the other branch is still there"
    assert check_against_cold_runs(desk.engine, starter_path, first=5) >= 2, "of four"


def test_to_another_chat_and_back(desk: Desk) -> None:
    a, b = new_chat(desk), new_chat(desk)
    desk.say(a, TURNS[0])
    desk.say(b, "Tell me the capital of France, and one thing to see there.")
    desk.say(a, TURNS[1])
    desk.say(b, "And of Italy?")
    reuse = check_reuse(desk.engine)
    assert reuse[1][0] >= BLOCK_SIZE, "the system prompt is stored once"
    a_prompt, b_prompt = (sum(reuse[index]) for index in (0, 1))
    assert reuse[2][0] >= a_prompt
    assert reuse[3][0] >= b_prompt


def test_a_stopped_reply_goes_on(desk: Desk) -> None:
    chat = new_chat(desk, replace(SETTINGS, max_tokens=60))
    desk.session.send(chat, "Count from one to twenty in words.")
    while chat.reply is None or len(chat.reply.text) < 20:
        desk.take_in()
        desk.engine.step()
    desk.session.stop(chat)
    desk.settle()
    reply = chat.conversation.path()[-1]
    assert reply.state is MessageState.STOPPED
    assert reply.figures is not None
    stopped_at = reply.text
    desk.session.resume(chat, reply.id)
    desk.settle()
    reply = chat.conversation.path()[-1]
    assert reply.text.startswith(stopped_at)
    assert len(reply.text) > len(stopped_at)
    assert desk.session.store.load(chat.chat_id).path()[-1].text == reply.text
    [_, (reused, computed)] = check_reuse(desk.engine)
    assert computed <= 2 * BLOCK_SIZE <= reused


def test_titles_come_from_what_is_cached(desk: Desk) -> None:
    chat = desk.session.new_chat()
    desk.session.change_settings(chat, SETTINGS)
    desk.say(chat, TURNS[0])
    [(_, _), (reused, computed)] = check_reuse(desk.engine)
    assert reused >= 2 * BLOCK_SIZE, "what the chat begins with"
    assert computed > 0
    desk.say(chat, TURNS[1])
    assert len(desk.engine.answered) == 3, "one title is enough"
