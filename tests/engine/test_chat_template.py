"""Templates of the kinds that models carry, and of kinds that they should not."""

from __future__ import annotations

import datetime
import sys

import pytest

from engine.chat_template import MAX_TEMPLATE_OUTPUT, ChatTemplate
from engine.errors import ModelFileError, PromptError
from engine.messages import ChatMessage

CHATML = """
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"""

ALTERNATING = """
{{- bos_token }}
{%- for m in messages if m.role != 'system' %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate!') }}{% endif %}
    {%- if m.role == 'user' %}
        {%- if loop.last and messages[0].role == 'system' %}[INST] {{ messages[0].content }} | {{ m.content }}[/INST]
        {%- else %}[INST] {{ m.content }}[/INST]{% endif %}
    {%- else %} {{ m.content }}{{ eos_token }}{% endif %}
{%- endfor %}"""

WITHOUT_SYSTEM = """
{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for m in messages %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
    {{- m.role }}: {{ m.content | trim }};
{%- endfor %}"""

SILENT_ABOUT_SYSTEM = (
    "{% for m in messages if m.role in ['user', 'assistant'] %}{{ m.role }}: {{ m.content }};{% endfor %}"
)

SYSTEM = ChatMessage("system", " Be brief. ")


def user(content: str) -> ChatMessage:
    return ChatMessage("user", content)


def assistant(content: str) -> ChatMessage:
    return ChatMessage("assistant", content)


def render(source: str, *messages: ChatMessage, thinking: bool | None = None) -> str:
    return ChatTemplate(source, "<s>", "</s>").render(messages, thinking=thinking)


def test_turns_and_the_generation_prompt() -> None:
    text = render(CHATML, user("Hi"), assistant("Hello"), user("Bye"))
    turns = ["user\nHi", "assistant\nHello", "user\nBye"]
    assert text == "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"


def test_two_turns_of_one_role_are_joined_only_where_the_template_wants_it() -> None:
    chat = (user("Hi"), assistant("Hel"), user("Stop"), user("Go on"))
    assert "<|im_start|>user\nStop<|im_end|>\n<|im_start|>user\nGo on<|im_end|>" in render(CHATML, *chat)
    assert render(ALTERNATING, *chat) == "<s>[INST] Hi[/INST] Hel</s>[INST] Stop\n\nGo on[/INST]"


def test_a_system_message_stays_one_where_the_template_knows_it() -> None:
    assert "[INST]  Be brief.  | Stop\n\nGo[/INST]" in render(ALTERNATING, SYSTEM, user("Stop"), user("Go"))


@pytest.mark.parametrize("source", [WITHOUT_SYSTEM, SILENT_ABOUT_SYSTEM], ids=["refused", "ignored"])
def test_a_system_message_opens_the_first_user_message_where_there_is_no_place_for_it(source: str) -> None:
    chat = (SYSTEM, user("Hi"), assistant("Hello"), user("Bye"))
    text = render(source, *chat)
    assert text.replace(" ", "") == "user:Bebrief.\n\nHi;assistant:Hello;user:Bye;"


def test_a_refusal_is_told_in_the_words_of_the_template() -> None:
    with pytest.raises(PromptError, match=r"refused the messages: Roles must alternate!$"):
        render(ALTERNATING, assistant("Hello"), user("Hi"))


def test_the_refusal_told_is_that_of_the_messages_as_they_are() -> None:
    with pytest.raises(PromptError, match=r"refused the messages: not these 3$"):
        render("{{ raise_exception('not these ' ~ messages | length) }}", SYSTEM, user("Hi"), user("Ho"))


def test_a_failure_is_told_as_one() -> None:
    with pytest.raises(PromptError, match=r"failed: .*'tool_calls'$"):
        render("{{ messages[0].tool_calls.name }}", user("Hi"))


def test_words_of_a_template_cannot_act_on_a_terminal() -> None:
    with pytest.raises(PromptError) as caught:
        render("{{ raise_exception('a\x1b[2Jb\nc' + 'x' * 5000) }}", user("Hi"))
    assert "a␛[2Jb cxxx" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("source", ["{% if %}", "{{ 'a' ", "{% unknown_tag %}", "{{ x | no_such_filter }}"])
def test_a_source_that_is_no_jinja_is_an_error_of_the_file(source: str) -> None:
    with pytest.raises(ModelFileError, match=r"^The model's chat template cannot be compiled \(.+\): .*\.$"):
        ChatTemplate(source, "", "")


def test_what_transformers_offers_to_templates() -> None:
    assert render("{% for m in messages %}{{ m.content }}{% break %}{% endfor %}", user("1"), user("2")) == "1"
    assert render("{% generation %}{{ eos_token }}{% endgeneration %}", user("")) == "</s>"
    assert render("{{ messages | tojson }}", user("<é>")) == '[{"role": "user", "content": "<é>"}]'
    assert render("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", user("")) == '{\n "a": 2,\n "b": 1\n}'
    assert int(render("{{ strftime_now('%Y') }}", user(""))) >= datetime.date.today().year - 1
    assert render("{{ tools is none and documents is none }}", user("")) == "True"
    assert render("a\n    {% if true %}\nb\n    {% endif %}\n", user("")) == "a\nb\n"  # trim_blocks, lstrip_blocks


def test_thinking_is_passed_on_only_when_chosen() -> None:
    source = "{{ enable_thinking if enable_thinking is defined else 'default' }}"
    assert [render(source, user(""), thinking=choice) for choice in (None, True, False)] == ["default", "True", "False"]


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for i in range(10 ** 9) %}x{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}xxxxxxxx{% endfor %}{% endfor %}",
        "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}{{ twice(60) }}",
        "{{ messages.append(messages[0]) }}",
        "{{ 'x' * 3000000 }}",
    ],
)
def test_templates_of_strangers_are_kept_in_bounds(source: str) -> None:
    with pytest.raises(PromptError, match=r"^The model's chat template "):
        render(source, user("Hi"))


def test_a_long_chat_is_no_runaway_loop_and_leaves_tracing_as_it_was() -> None:
    chat = [ChatMessage(role, "x") for _ in range(2000) for role in ("user", "assistant")]
    before = sys.gettrace()
    assert render(CHATML, *chat).count("<|im_start|>") == len(chat) + 1
    assert sys.gettrace() is before


def test_long_messages_are_no_runaway_loop() -> None:
    long = "x" * (2 * MAX_TEMPLATE_OUTPUT)
    assert long in render(CHATML, user(long))
