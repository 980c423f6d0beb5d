"""Messages into prompt text, by the template that the model file carries.

Templates are Jinja source written for transformers' `apply_chat_template`; the environment below offers what
transformers and llama-cpp-python offer them. They come from files of strangers, so they run in Jinja's sandbox.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine.errors import ModelFileError, PromptError
from engine.messages import ChatMessage, Role
from engine.printable import printable

MAX_TEMPLATE_OUTPUT = 1 << 20
"""Characters a template may add to what the messages hold, before it is taken for a runaway loop."""

MAX_TEMPLATE_LINES = 1_000_000
"""Lines of its code a template may run, counted as Python runs them. Real ones run a few dozen a message."""

_COMPILED = "<template>"
"""The file name that Jinja gives to the code of a template that comes from a string."""


class ChatTemplate:
    """A compiled template.

    Raises ModelFileError when the source is no valid Jinja.

    Not covered: an expression that builds one giant value runs until the process that hosts it is stopped.
    """

    def __init__(self, source: str, bos_token: str, eos_token: str):
        self.source = source
        self._special_tokens = {"bos_token": bos_token, "eos_token": eos_token}
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelFileError(
                f"The model's chat template cannot be compiled ({_words(error)}): use the model without it (--raw)."
            ) from error

    def render(self, messages: Sequence[ChatMessage], *, thinking: bool | None = None) -> str:
        """The prompt text for the assistant's next turn.

        thinking: passed on as `enable_thinking`, which templates of reasoning models read; None leaves their default.

        Some templates refuse, or pass over in silence, what a chat may well contain: a system message, or two
        turns of one role in a row (after a stopped reply). Neither is an error of the user's, so turns of one role
        are joined, and a system message moves to the start of the first user message. The template is tried with
        as few of these changes as it takes.

        Raises PromptError, with the template's own words, when no way is left.
        """
        refusal: Exception | None = None
        for arrange in _ARRANGEMENTS:
            arranged = arrange(messages)
            try:
                text = self._render(arranged, thinking)
            except _EndlessError as error:
                refusal = error
                break
            except Exception as error:  # a template can raise anything
                refusal = refusal or error
            else:
                if all(message.content.strip() in text for message in arranged if message.role == Role.SYSTEM):
                    return text
        assert refusal is not None
        verdict = "refused the messages" if isinstance(refusal, _RefusalError) else "failed"
        raise PromptError(f"The model's chat template {verdict}: {_words(refusal)}") from refusal

    def _render(self, messages: Sequence[ChatMessage], thinking: bool | None) -> str:
        variables: dict[str, Any] = {
            "messages": [dataclasses.asdict(message) for message in messages],
            "add_generation_prompt": True,
            "tools": None,
            "documents": None,
            **self._special_tokens,
        }
        if thinking is not None:
            variables["enable_thinking"] = thinking
        limit = MAX_TEMPLATE_OUTPUT + 4 * sum(len(message.content) for message in messages)
        with _lines_limited():
            return "".join(_limited(self._template.generate(variables), limit))


def _as_they_are(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return list(messages)


def _merge_turns(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Join neighbours of one role."""
    merged: list[ChatMessage] = []
    for message in messages:
        if merged and merged[-1].role == message.role:
            merged[-1] = ChatMessage(message.role, f"{merged[-1].content}\n\n{message.content}")
        else:
            merged.append(message)
    return merged


def _fold_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Turn system messages into user messages, and join neighbours of one role."""
    return _merge_turns([dataclasses.replace(m, role=Role.USER) if m.role == Role.SYSTEM else m for m in messages])


_ARRANGEMENTS: tuple[Callable[[Sequence[ChatMessage]], list[ChatMessage]], ...] = (
    _as_they_are,
    _merge_turns,
    _fold_system,
)


def _limited(pieces: Iterator[str], limit: int) -> Iterator[str]:
    written = 0
    for piece in pieces:
        written += len(piece)
        if written > limit:
            raise _EndlessError("it writes without end.")
        yield piece


@contextlib.contextmanager
def _lines_limited() -> Iterator[None]:
    """Stop a template after MAX_TEMPLATE_LINES: nested loops and recursive macros need not print anything.

    Counted by Python's trace function, which is exact, while a time limit would depend on the machine.
    """
    n_left = MAX_TEMPLATE_LINES
    previous = sys.gettrace()

    def count(frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal n_left
        if frame.f_code.co_filename != _COMPILED:
            return None
        n_left -= 1
        if n_left < 0:
            raise _EndlessError("it runs without end.")
        return count

    sys.settrace(count)
    try:
        yield
    finally:
        sys.settrace(previous)


class _RefusalError(Exception):
    """The template called `raise_exception`."""


class _EndlessError(Exception):
    """The template was stopped."""


class _GenerationTag(Extension):
    """`{% generation %}`: transformers' mark around assistant text for training; here only its body counts."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise _RefusalError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _to_json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    """`tojson` as transformers has it: unlike Jinja's own, it keeps non-ASCII text and escapes no HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _words(error: Exception) -> str:
    """What an error says, on one line: the author of the template may have written it."""
    return " ".join(printable(str(error) or type(error).__name__).split())[:300]
