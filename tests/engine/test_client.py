"""The engine in a process of its own: real processes, real models, really killed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.client import EngineClient
from engine.config import EngineConfig, EngineKind
from engine.errors import DeviceError, EngineDied, ModelFileError, OctavoError, PromptError, PromptTooLong
from engine.messages import ChatMessage, Failed, Finished, Notice, TextDelta, TextEvent, TextRequest
from engine.sequence import FinishReason, SamplingParams
from engine.survey import BlockState

ROOT = Path(__file__).parents[2]
GREEDY = SamplingParams(temperature=0.0)
COUNTING = "1 2 3 4 5 6 7 8 9 10 11 12"
"""Completed greedily, the starter model counts on for as long as it may."""


@pytest.fixture(scope="module")
def client(starter_path: Path) -> Iterator[EngineClient]:
    with EngineClient(starter_path, EngineConfig(context=1024)) as client:
        yield client


def counting(max_tokens: int | None = None, *, stop: tuple[str, ...] = (), n: int = 1) -> TextRequest:
    return TextRequest(COUNTING, GREEDY, max_tokens, stop, n=n)


def answer(client: EngineClient, request: TextRequest) -> Finished:
    (finished,) = (event for event in client.stream(request) if isinstance(event, Finished))
    return finished


def first_text(stream: Iterator[TextEvent]) -> TextDelta:
    return next(event for event in stream if isinstance(event, TextDelta))


def is_running(pid: int) -> bool:
    """Whether a process that is not our child computes or waits; one that only waits to be reaped does not."""
    status = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            return status.read_text().rpartition(")")[2].split()[0] not in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_answer_comes_in_pieces_and_then_whole(client: EngineClient) -> None:
    events = list(client.stream(counting(12)))
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.text == " 13 14 15 16"
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == finished.text
    assert len([event for event in events if isinstance(event, TextDelta)]) > 1
    assert finished.reason == FinishReason.LENGTH
    assert len(finished.token_ids) == finished.stats.generated_tokens == 12


def test_several_requests_at_once_from_several_threads(client: EngineClient) -> None:
    texts: dict[int, str] = {}

    def ask(n_tokens: int) -> None:
        texts[n_tokens] = answer(client, counting(n_tokens)).text

    threads = [threading.Thread(target=ask, args=(n,)) for n in (3, 6, 9, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {3: " 13", 6: " 13 14", 9: " 13 14 15", 12: " 13 14 15 16"}


def test_a_stop_string_across_tokens_is_not_leaked(client: EngineClient) -> None:
    events = list(client.stream(counting(stop=("4 15",))))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == " 13 1"
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert (finished.text, finished.reason) == (" 13 1", FinishReason.STOP)


def test_cancel_ends_one_answer_and_leaves_the_others(client: EngineClient) -> None:
    inbox: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
    request_id = client.submit(counting(40, n=2), inbox.put)
    finished: dict[int, Finished] = {}
    cancelled = False
    while len(finished) < 2:
        event = inbox.get()
        if isinstance(event, TextDelta) and event.index == 0 and not cancelled:
            client.cancel(request_id, 0)
            cancelled = True
        if isinstance(event, Finished):
            finished[event.index] = event
    assert finished[0].reason == FinishReason.CANCELLED
    assert finished[1].reason == FinishReason.LENGTH
    assert finished[1].text.startswith(finished[0].text)


def test_leaving_the_stream_cancels_the_request(client: EngineClient) -> None:
    stream = client.stream(counting())
    first_text(stream)
    stream.close()  # type: ignore[attr-defined]
    assert answer(client, counting(3)).text == " 13"


def test_questions_are_answered_while_requests_run(client: EngineClient) -> None:
    stream = client.stream(replace(counting(), owner=5))
    first_text(stream)
    survey = client.survey().result()
    [running] = survey.sequences
    assert running.owner == 5
    assert survey.kv.blocks_used == survey.states.count(BlockState.USED) == running.n_blocks
    assert survey.owners.count(5) >= running.n_blocks
    assert client.count_tokens(TextRequest("a b c")).result() == 3
    stream.close()  # type: ignore[attr-defined]
    with pytest.raises(PromptError):
        client.count_tokens(TextRequest((ChatMessage("user", "Hi"),), continued="\ud800"))


def test_questions_to_an_engine_that_dies_fail(starter_path: Path) -> None:
    with EngineClient(starter_path, EngineConfig(context=1024)) as client:
        client.load()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGSTOP)
        survey = client.survey()
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            survey.result()


def test_a_prompt_that_is_too_long_says_by_how_much(client: EngineClient) -> None:
    with pytest.raises(PromptTooLong) as caught:
        answer(client, TextRequest("word " * 2000))
    assert (caught.value.context, caught.value.n_tokens > 2000) == (1024, True)


def test_a_refused_request_harms_no_other(client: EngineClient) -> None:
    stream = client.stream(counting(30))
    first_text(stream)
    with pytest.raises(PromptError, match="more than fit"):
        answer(client, TextRequest("word " * 2000))
    finished = list(stream)[-1]
    assert isinstance(finished, Finished)
    assert finished.stats.generated_tokens == 30


def test_an_empty_prompt_is_refused_before_anything_is_sent() -> None:
    for prompt in ("", " \n", ()):
        with pytest.raises(PromptError, match="empty"):
            TextRequest(prompt)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_a_killed_engine_is_an_error_and_the_next_request_has_a_fresh_one(
    client: EngineClient, number: signal.Signals
) -> None:
    streams = [client.stream(counting()), client.stream(counting())]
    for stream in streams:
        first_text(stream)
    old = client.pid
    assert old is not None
    os.kill(old, number)
    for stream in streams:
        with pytest.raises(EngineDied, match=number.name) as caught:
            list(stream)
    details = "".join(getattr(caught.value, "__notes__", ()))
    assert ("Aborted" in details) == (number == signal.SIGABRT)
    assert answer(client, counting(3)).text == " 13"
    assert client.pid not in (None, old)


def test_an_engine_killed_while_idle_is_replaced_without_an_error(client: EngineClient) -> None:
    client.load()
    pid = client.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while client.pid is not None:
        time.sleep(0.01)
    assert answer(client, counting(3)).text == " 13"


def test_ctrl_c_for_the_engine_is_ignored(client: EngineClient) -> None:
    """A terminal sends SIGINT to a whole group; the app decides what it means."""
    client.load()
    assert client.pid is not None
    assert os.getpgid(client.pid) != os.getpgid(0)


def test_loading_reports_progress_and_what_was_loaded(starter_path: Path) -> None:
    fractions: list[float] = []
    with EngineClient(starter_path, EngineConfig(context=512), fractions.append) as client:
        loaded = client.load()
        assert client.load() == loaded
    assert loaded.context == 512
    assert loaded.engine == "paged"
    assert fractions == sorted(fractions)
    assert fractions[0] >= 0
    assert fractions[-1] == 1


def test_errors_arrive_as_what_they_are(tmp_path: Path, starter_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(20))
    cases: list[tuple[Path, EngineConfig, type[OctavoError]]] = [
        (broken, EngineConfig(), ModelFileError),
        (starter_path, EngineConfig(device="abacus"), DeviceError),
    ]
    for path, config, kind in cases:
        with EngineClient(path, config) as client:
            with pytest.raises(OctavoError) as loading:
                client.load()
            assert type(loading.value) is kind
            with pytest.raises(kind, match=str(loading.value).split("'", maxsplit=1)[0]):
                answer(client, counting(1))


def test_a_file_that_is_mended_loads_the_next_time(tmp_path: Path, starter_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with EngineClient(path, EngineConfig(context=256)) as client:
        with pytest.raises(ModelFileError):
            client.load()
        path.symlink_to(starter_path)
        assert answer(client, counting(3)).text == " 13"


def test_a_defect_arrives_with_its_traceback(starter_path: Path) -> None:
    nonsense = EngineConfig(context="many")  # type: ignore[arg-type]
    with EngineClient(starter_path, nonsense) as client, pytest.raises(EngineDied, match="defect") as caught:
        client.load()
    assert "Traceback" in "".join(caught.value.__notes__)


def test_a_process_that_cannot_start_is_an_error(starter_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with EngineClient(starter_path, EngineConfig()) as client, pytest.raises(EngineDied, match="cannot be started"):
        client.load()


def test_a_process_without_room_for_files_is_an_error(starter_path: Path) -> None:
    app = (
        "import resource\n"
        "from pathlib import Path\n"
        "from engine.client import EngineClient\n"
        "from engine.config import EngineConfig\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))\n"
        f"EngineClient(Path({str(starter_path)!r}), EngineConfig()).load()\n"
    )
    result = subprocess.run([sys.executable, "-c", app], stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert result.stderr.splitlines()[-1].startswith("engine.errors.EngineDied: The engine's process cannot be started")


def test_a_file_on_which_native_code_gives_up(tiny_model: Callable[..., Path]) -> None:
    """llama.cpp aborts on a vocabulary with duplicates."""
    path = tiny_model(tokenizer="gpt2", metadata={"tokenizer.ggml.tokens": ["a"] * 272})
    with EngineClient(path, EngineConfig()) as client, pytest.raises(EngineDied, match="seems to be damaged"):
        client.load()


def test_a_mapped_file_that_is_cut_short_while_it_is_in_use(tiny_model: Callable[..., Path]) -> None:
    path = tiny_model(tokenizer="gpt2")
    with EngineClient(path, EngineConfig(EngineKind.CONTIGUOUS)) as client:
        client.load()
        os.truncate(path, 0)
        with pytest.raises(EngineDied, match="changed while it was in use"):
            answer(client, counting(3))
        with pytest.raises(ModelFileError, match="empty"):
            answer(client, counting(3))


@pytest.mark.parametrize(("number", "name"), [(signal.SIGABRT, "SIGABRT"), (40, "signal 40")])
def test_every_way_to_die_has_a_name(client: EngineClient, number: int, name: str) -> None:
    if number == 40 and sys.platform != "linux":
        pytest.skip("no real-time signals on this system")
    client.load()
    assert client.pid is not None
    inbox: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
    client.submit(counting(), inbox.put)
    os.kill(client.pid, number)
    while not isinstance(event := inbox.get(), Failed):
        pass
    assert f"was ended by {name};" in str(event.error)


def test_closing_ends_the_process_and_whoever_still_waits_hears_of_it(starter_path: Path) -> None:
    inbox: queue.SimpleQueue[TextEvent] = queue.SimpleQueue()
    client = EngineClient(starter_path, EngineConfig(context=1024))
    client.submit(counting(), inbox.put)
    while not isinstance(inbox.get(), TextDelta):
        pass
    pid = client.pid
    assert pid is not None
    client.close()
    assert not is_running(pid)
    assert client.pid is None
    events = []
    while not events or not isinstance(events[-1], Failed):
        events.append(inbox.get())
    assert isinstance(events[-1].error, EngineDied)


def test_the_engine_ends_when_the_app_is_killed(starter_path: Path) -> None:
    app = (
        "from pathlib import Path\n"
        "from engine.client import EngineClient\n"
        "from engine.config import EngineConfig\n"
        "from engine.messages import TextDelta, TextRequest\n"
        f"client = EngineClient(Path({str(starter_path)!r}), EngineConfig(context=1024))\n"
        f"for event in client.stream(TextRequest({COUNTING!r})):\n"
        "    if isinstance(event, TextDelta): print(client.pid, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", app], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    assert is_running(engine)
    process.kill()
    process.wait()
    process.stdout.close()
    while is_running(engine):  # a test that hangs here has found an orphan
        time.sleep(0.01)


def test_the_engine_ends_when_the_app_is_killed_whatever_it_is_doing(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    """It runs a template that never ends, since the limit is lifted here."""
    lift = (
        "if 'engine.worker' in ' '.join(sys.orig_argv): import engine.chat_template as t; t.MAX_TEMPLATE_LINES = 1e99"
    )
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{lift}\n")
    numbers = "range(99999)"
    endless = "{% for i in N %}{% for j in N %}{% for k in N %}{% endfor %}{% endfor %}{% endfor %}".replace(
        "N", numbers
    )
    path = tiny_model(tokenizer="gpt2", chat_template=endless)
    app = (
        "from pathlib import Path\n"
        "from engine.client import EngineClient\n"
        "from engine.config import EngineConfig\n"
        "from engine.messages import ChatMessage, TextRequest\n"
        f"client = EngineClient(Path({str(path)!r}), EngineConfig())\n"
        "client.load()\n"
        "client.submit(TextRequest((ChatMessage('user', 'Hi'),)), print)\n"
        "print(client.pid, flush=True)\n"
        "client.stream(TextRequest('Hi')).__next__()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", app],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    while is_running(engine):  # a test that hangs here has found an orphan
        time.sleep(0.01)


def test_without_a_template_it_says_so_once_and_completes(tiny_model: Callable[..., Path]) -> None:
    from engine.messages import ChatMessage

    with EngineClient(tiny_model(tokenizer="gpt2"), EngineConfig()) as client:
        request = TextRequest((ChatMessage("user", "hello world"),), GREEDY, max_tokens=2)
        notices = [[e for e in client.stream(request) if isinstance(e, Notice)] for _ in range(2)]
        as_text = answer(client, TextRequest("hello world", GREEDY, max_tokens=2))
        assert answer(client, request).token_ids == as_text.token_ids
    assert [len(said) for said in notices] == [1, 0]
    assert "no chat template" in notices[0][0].text
