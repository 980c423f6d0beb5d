"""One line of a batch file: JSON with a prompt or messages, and any option of a request by its long name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from app.options import ENGINE_OPTIONS, REQUEST_OPTIONS, RequestOptions, WrongType, typed_value
from engine.errors import OctavoError
from engine.messages import ChatMessage, TextRequest
from engine.printable import quoted

_REQUEST_OPTIONS = {str(option.name): option for option in REQUEST_OPTIONS}
_ENGINE_OPTIONS = {str(option.name) for option in ENGINE_OPTIONS}


class BatchLine(NamedTuple):
    """What a line asks for, or why it cannot be answered; `id` is the line's own, or else its number from 1."""

    id: Any
    request: TextRequest | OctavoError


class LineError(OctavoError):
    """A line of a batch file asks for nothing that can be answered."""


def parse_line(number: int, line: bytes, defaults: Mapping[str, Any]) -> BatchLine:
    """Read a line; `defaults` holds the values of REQUEST_OPTIONS for what it leaves out."""
    identifier: Any = number
    try:
        fields = _fields(line)
        identifier = fields.pop("id", number)
        return BatchLine(identifier, _request(fields, defaults))
    except OctavoError as error:
        return BatchLine(identifier, error)
    except click.UsageError as error:
        return BatchLine(identifier, LineError(error.format_message()))


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise LineError(f"The line is not valid JSON: {error.msg} (column {error.colno}).") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, a number of thousands of digits, endless nesting
        raise LineError(f"The line is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise LineError("The line is not a JSON object: write one with a prompt or messages.")
    return fields


def _request(fields: dict[str, Any], defaults: Mapping[str, Any]) -> TextRequest:
    prompt, messages = fields.pop("prompt", None), fields.pop("messages", None)
    options = RequestOptions(**{**defaults, **{name: _option(name, value) for name, value in fields.items()}})
    if (prompt is None) == (messages is None):
        raise LineError("The line needs either a prompt or messages.")
    if messages is not None:
        return options.chat(_messages(messages))
    if not isinstance(prompt, str):
        raise LineError("The prompt is not a string.")
    return options.ask(prompt)


def _option(name: str, value: Any) -> Any:
    """The value that the command line would make of it. Raises LineError or click.BadParameter."""
    if name in _ENGINE_OPTIONS:
        raise LineError(f"{quoted(name)} holds for all lines: give it on the command line.")
    option = _REQUEST_OPTIONS.get(name)
    if option is None:
        known = ", ".join(("id", "prompt", "messages", *_REQUEST_OPTIONS))
        raise LineError(f"{quoted(name)} is unknown; a line may have {known}.")
    if option.multiple:
        values = value if isinstance(value, list) else [value]
        return tuple(_single(option, one) for one in values)
    return _single(option, value)


def _single(option: click.Option, value: Any) -> Any:
    try:
        return typed_value(option.type, value, option)
    except WrongType as expected:
        raise LineError(f"{quoted(str(option.name))} is not {expected}.") from None


def _messages(value: Any) -> tuple[ChatMessage, ...]:
    if not isinstance(value, list):
        raise LineError("The messages are not a list.")
    return tuple(_message(message) for message in value)


def _message(value: Any) -> ChatMessage:
    match value:
        case {"role": str(role), "content": str(content), **others} if not others:
            return ChatMessage(role, content)
    raise LineError("A message is not an object with the strings role and content.")
