"""A server measured from outside: a real one on loopback that streams as llama-server, Ollama and vLLM do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.compare.endpoint import Endpoint, EndpointError
from app.compare.endpoint_lane import EndpointVariant
from app.compare.lanes import Answer, LaneMemory, RequestStopped
from app.compare.words import Words
from engine.errors import EngineDied, ModelFileError
from engine.messages import ChatMessage, TextRequest, TokenPrompt
from engine.sequence import SamplingParams
from engine.tokenizer import Tokenizer
from tests.app.compare.openai_server import Behaviour, OpenAiServer, Style

GREEDY = SamplingParams(temperature=0)
CHAT = TextRequest((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello?")), GREEDY, max_tokens=3)
ANSWER = "Hello \u2028wörld"
TinyModel = Callable[..., Path]


@pytest.fixture
def server() -> Iterator[OpenAiServer]:
    with OpenAiServer() as server:
        yield server


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.tiny_gguf import write_tiny

    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.gguf", tokenizer="gpt2")


@pytest.fixture
def variant(server: OpenAiServer, model_file: Path) -> EndpointVariant:
    variant = EndpointVariant(Endpoint.parse(server.address, {}), model_file, silence_s=0.3)
    variant.start(lambda _: None)
    return variant


def ask(variant: EndpointVariant, request: TextRequest = CHAT) -> tuple[Answer, list[str]]:
    texts: list[str] = []
    return variant.ask(request, texts.append, lambda: False), texts


@pytest.mark.parametrize("style", list(Style))
def test_an_answer_of_each_server(server: OpenAiServer, variant: EndpointVariant, style: Style) -> None:
    server.behaviour = Behaviour(style)
    answer, texts = ask(variant)
    assert "".join(texts) == ANSWER
    assert answer.texts == (ANSWER,)
    assert (answer.token_ids, answer.generated_tokens, answer.prompt_tokens) == ((), 3, 20)
    assert 0 < answer.user.first_s <= answer.user.end_s
    if style is Style.LLAMA_SERVER:
        assert answer.engine == (0.25, 0.75)
        assert (answer.prefill_s, answer.reused_tokens, answer.computed_tokens) == (0.25, 5, 15)
    else:
        assert (answer.engine, answer.prefill_s, answer.reused_tokens, answer.computed_tokens) == (None,) * 4
    assert variant.memory() == LaneMemory(None, None, None, None)


@pytest.mark.parametrize("style", list(Style))
def test_several_answers(server: OpenAiServer, variant: EndpointVariant, style: Style) -> None:
    server.behaviour = Behaviour(style)
    answer, texts = ask(variant, replace(CHAT, n=3, sampling=SamplingParams(seed=5)))
    assert answer.texts == (ANSWER,) * 3
    assert answer.generated_tokens == 9
    assert "".join(texts) == ANSWER
    assert answer.engine is None
    asked = {(request.body.get("n", 1), request.body["seed"]) for request in server.answered}  # noted in any order
    assert asked == ({(3, 5), (1, 6), (1, 7)} if style is Style.OLLAMA else {(3, 5)})  # Ollama gives one, whatever n is


@pytest.mark.parametrize("style", list(Style))
def test_thoughts_are_part_of_the_answer(server: OpenAiServer, variant: EndpointVariant, style: Style) -> None:
    server.behaviour = Behaviour(style, thoughts="Hm. ")
    assert ask(variant)[0].texts == ("Hm. " + ANSWER,)


@pytest.mark.parametrize("style", list(Style))
def test_a_completion_of_each_server(server: OpenAiServer, variant: EndpointVariant, style: Style) -> None:
    server.behaviour = Behaviour(style)
    answer, _ = ask(variant, TextRequest(TokenPrompt(tuple(range(20))), GREEDY, max_tokens=3))
    assert answer.texts == (ANSWER,)
    assert (answer.engine is not None) == (style is Style.LLAMA_SERVER)
    [request] = server.answered
    assert (request.path, request.body["ignore_eos"], request.body["max_tokens"]) == ("/v1/completions", True, 3)


def test_what_is_sent(server: OpenAiServer, variant: EndpointVariant) -> None:
    ask(variant, replace(CHAT, thinking=False, sampling=SamplingParams(seed=7), stop=("\n",)))
    [request] = server.answered
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert "authorization" not in request.headers
    body = request.body
    system, user = body.pop("messages")
    assert (system["role"], user) == ("system", {"role": "user", "content": "Hello?"})
    assert system["content"].endswith("\nBe brief.")
    assert body == {
        "model": "smollm",
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 0.8,
        "top_p": 0.95,
        "seed": 7,
        "stop": ["\n"],
        "max_tokens": 3,
    }


def test_prompts_begin_alike_until_the_cache_is_to_be_forgotten(server: OpenAiServer, variant: EndpointVariant) -> None:
    tokens = tuple(range(100, 140))
    for n in (20, 40):
        ask(variant, TextRequest(TokenPrompt(tokens[:n]), GREEDY, max_tokens=1))
    variant.forget()
    ask(variant, TextRequest(TokenPrompt(tokens[:20]), GREEDY, max_tokens=1))
    short, long, other = [request.body["prompt"] for request in server.answered]
    assert long.startswith(short)
    assert len(long.split()) == 40
    assert len(other.split()) == 20
    assert other.split()[6:] == short.split()[6:]
    assert other != short
    ask(variant, TextRequest(TokenPrompt((7,)), GREEDY, max_tokens=1))
    assert len(server.answered[-1].body["prompt"].split()) == 1


def test_text_is_as_many_tokens_as_meant(starter_path: Path) -> None:
    tokenizer, words = Tokenizer(str(starter_path)), Words.read(starter_path)
    for n in (1, 2, 512, 2048):
        numbers = [(i * 7919 + n) % 99991 for i in range(n)]
        assert len(tokenizer.encode_raw(words.text(numbers))) == n


def test_text_in_a_sentencepiece_vocabulary_is_a_token_or_two_longer(tiny_model: TinyModel) -> None:
    path = tiny_model(tokenizer="spm")
    tokenizer, words = Tokenizer(str(path)), Words.read(path)
    for n in (1, 50):
        assert n <= len(tokenizer.encode_raw(words.text(range(n)))) <= n + 2


def test_a_vocabulary_without_words(server: OpenAiServer, tiny_model: TinyModel, tmp_path: Path) -> None:
    for path in (tiny_model(), tmp_path / "missing"):
        with pytest.raises(ModelFileError, match="has no words"):
            EndpointVariant(Endpoint.parse(server.address, {}), path).start(lambda _: None)


def start(server: OpenAiServer, model_file: Path, address: str = "") -> None:
    EndpointVariant(Endpoint.parse(address or server.address, {}), model_file).start(lambda _: None)


def test_the_servers_only_model_is_used_or_the_one_that_is_named(server: OpenAiServer, model_file: Path) -> None:
    server.behaviour = Behaviour(models=[{"id": "a\x1b", "owned_by": "vllm", "max_model_len": 4096}])
    started = EndpointVariant(Endpoint.parse(server.address, {}), model_file).start(lambda _: None)
    assert (started.engine, started.context) == ("vllm", 4096)
    assert started.notice is not None
    assert started.notice.startswith(f"'a␛' on {server.address}: It is measured from outside")
    server.behaviour = Behaviour(models=[{"id": "a"}, {"id": "b\n"}])
    with pytest.raises(EndpointError, match=r"has 2 models: a, b␊; write #MODEL behind the address"):
        start(server, model_file)
    variant = EndpointVariant(Endpoint.parse(server.address + "#hf.co/x/y:Q4_0", {}), model_file)
    variant.start(lambda _: None)
    ask(variant)
    assert server.answered[-1].body["model"] == "hf.co/x/y:Q4_0"
    server.behaviour = Behaviour(models=[])
    with pytest.raises(EndpointError, match="has 0 models; write"):
        start(server, model_file)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data": {}}', b'{"data": [1]}', b'{"data": [{"id": 1}]}'])
def test_what_lists_no_models_is_no_server_of_this_kind(server: OpenAiServer, model_file: Path, body: bytes) -> None:
    server.behaviour = Behaviour(raw=body)
    with pytest.raises(EndpointError, match="does not list its models"):
        start(server, model_file)


def test_nobody_answers(server: OpenAiServer, model_file: Path) -> None:
    with pytest.raises(EndpointError, match=r"^No server answers at 127\.0\.0\.1:1 .*: start it, or check"):
        start(server, model_file, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (Behaviour(status=500, refusal=b'{"error": {"message": "out of\\nmemory."}}'), r"HTTP 500, out of␊memory\)"),
        (Behaviour(status=500, refusal=b'{"error": "model \'x\' not found"}'), r"HTTP 500, model 'x' not found\)"),
        (Behaviour(status=503, refusal=b"\xff<html>"), r"refuses the request \(HTTP 503\): see its log"),
        (Behaviour(status=404), r"has no /chat/completions \(HTTP 404\)"),
        (Behaviour(status=404, refusal=b'{"message": "no such model"}'), r"HTTP 404, no such model"),
        (Behaviour(status=401), r"wants another API key \(HTTP 401\): set OPENAI_BASE_URL to http://127"),
        (Behaviour(status=302), r"refuses the request \(HTTP 302\)"),
        (Behaviour(cut_after=3), "broke off in the middle of an answer|peer closed connection"),
        (Behaviour(events=["{"]), "no JSON object where a piece of an answer should be"),
        (Behaviour(events=["3"]), "no JSON object"),
        (Behaviour(events=['{"choices": 3}']), "another format than OpenAI's"),
        (Behaviour(events=['{"choices": [3]}']), "another format than OpenAI's"),
        (Behaviour(events=['{"choices": [{"index": "a", "delta": {"content": "x"}}]}']), "another format"),
        (Behaviour(events=['{"error": {"message": "context\\u001b full"}}']), "reports an error: context␛ full"),
        (Behaviour(events=["[DONE]"]), "broke off in the middle"),
        (Behaviour(events=['{"choices": [{"delta": {"content": "Hi"}}]}']), "broke off in the middle"),
        (Behaviour(raw=b"<html>", content_type="text/html"), "does not stream"),
        (Behaviour(raw=b'{"error": "busy"}', content_type="application/json"), "reports an error: busy"),
        (Behaviour(stalls=True), r"was silent for 0\.3 seconds"),
    ],
)
def test_what_goes_wrong_is_one_sentence(
    server: OpenAiServer, variant: EndpointVariant, behaviour: Behaviour, words: str
) -> None:
    server.behaviour = behaviour
    with pytest.raises(EndpointError, match=words) as caught:
        ask(variant)
    assert "\n" not in str(caught.value)
    assert server.address in str(caught.value)
    server.go_on.set()
    server.behaviour = Behaviour()
    assert ask(variant)[0].texts == (ANSWER,)


def test_raw_tests_need_completions(server: OpenAiServer, variant: EndpointVariant) -> None:
    server.behaviour = Behaviour(has_completions=False)
    with pytest.raises(EndpointError, match=r"has no /completions \(HTTP 404\): this cannot be measured there"):
        ask(variant, TextRequest(TokenPrompt((1, 2)), GREEDY, max_tokens=1))


def test_figures_that_make_no_sense_are_left_out(server: OpenAiServer, variant: EndpointVariant) -> None:
    piece = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    strange = {"usage": {"prompt_tokens": "many", "prompt_tokens_details": 3}, "timings": {"prompt_ms": -1}}
    server.behaviour = Behaviour(events=[json.dumps(piece | strange), "[DONE]"])
    answer, _ = ask(variant)
    assert (answer.texts, answer.generated_tokens) == (("Hi",), 1)
    assert (answer.engine, answer.prompt_tokens, answer.reused_tokens) == (None, None, None)


def test_a_request_can_be_stopped_before_the_server_has_said_anything(server: OpenAiServer, model_file: Path) -> None:
    variant = EndpointVariant(Endpoint.parse(server.address, {}), model_file)
    variant.start(lambda _: None)
    server.behaviour = Behaviour(stalls=True, pieces=["x" * 1000] * 100_000)
    with pytest.raises(RequestStopped):
        variant.ask(CHAT, lambda _: None, lambda: len(server.answered) == 1)
    server.go_on.set()
    assert server.broken_off.wait(10)  # the server notices, and can stop computing


def test_closing_from_elsewhere_breaks_off(server: OpenAiServer, model_file: Path) -> None:
    variant = EndpointVariant(Endpoint.parse(server.address, {}), model_file)
    variant.start(lambda _: None)
    server.behaviour = Behaviour(stalls=True)
    threading.Timer(0.1, variant.close).start()
    with pytest.raises(EngineDied, match="was closed"):
        ask(variant)
    variant.close()


def test_the_first_text_is_timed_when_it_comes(server: OpenAiServer, model_file: Path) -> None:
    variant = EndpointVariant(Endpoint.parse(server.address, {}), model_file)
    variant.start(lambda _: None)
    server.behaviour = Behaviour(stalls=True)

    def let_it_wait() -> None:
        while not server.answered:
            time.sleep(0.01)
        time.sleep(0.1)
        server.go_on.set()

    threading.Thread(target=let_it_wait).start()
    start = time.monotonic()
    answer, _ = ask(variant)
    assert 0.1 <= answer.user.first_s <= answer.user.end_s <= time.monotonic() - start


def test_a_server_outlives_the_program(variant: EndpointVariant) -> None:
    assert variant.quit_and_come_back()
