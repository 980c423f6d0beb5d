"""What crosses the pipe between an app and an engine's process: requests go down, events come up.

Plain data only: this module imports no native code, so that an app starts fast and survives what
happens in the engine's process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from engine.config import EngineConfig
from engine.errors import OctavoError, PromptError
from engine.printable import quoted
from engine.sequence import FinishReason, KvStats, PrefillEvent, Priority, SamplingParams, SequenceStats
from engine.survey import PoolSurvey
from engine.tuning import TuningReport


class Role(enum.StrEnum):
    """Who a message is from."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a chat. Raises PromptError for a role that is no `Role`: templates print it as control text."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in list(Role):
            raise PromptError(f"A message has the role {quoted(self.role, 40)}: use {', '.join(Role)}.")


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt that was tokenized before, as measurements have them. Answers to it do not end before `max_tokens`."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True)
class TextRequest:
    """A prompt and what to do with it.

    prompt: messages for the model's chat template, a string to complete as it stands, or token ids.
    stop: strings that end an answer; they are not part of it. max_tokens, priority, n, owner: as in Request.
    thinking: whether a reasoning model should think first; None leaves it to the model's chat template.
    continued: the beginning of the assistant's answer to the messages, which the model is to go on with.
    Raises PromptError when there is nothing to answer.
    """

    prompt: str | tuple[ChatMessage, ...] | TokenPrompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    priority: Priority = Priority.INTERACTIVE
    n: int = 1
    owner: int = 1
    thinking: bool | None = None
    continued: str = ""

    def __post_init__(self) -> None:
        match self.prompt:
            case str(text):
                texts = [text]
            case TokenPrompt():
                texts = []
            case messages:
                texts = [message.content for message in messages]
        if not isinstance(self.prompt, TokenPrompt) and not (texts and texts[-1].strip()):
            raise PromptError("The prompt is empty: write what you want to ask.")
        try:
            "".join((*texts, *self.stop, self.continued)).encode()
        except UnicodeEncodeError:
            raise PromptError("The prompt or a stop string is not valid Unicode: write it in UTF-8.") from None


@dataclass(frozen=True)
class Load:
    """First message to a worker: which model, and how to run it."""

    path: str
    config: EngineConfig


@dataclass(frozen=True)
class Submit:
    """A request under an id that the sender chose."""

    request_id: int
    request: TextRequest


@dataclass(frozen=True)
class Cancel:
    """End all answers of a request, or the one at `index`."""

    request_id: int
    index: int | None


@dataclass(frozen=True)
class CountTokens:
    """Asks how many tokens the prompt of a request has."""

    request_id: int
    request: TextRequest


@dataclass(frozen=True)
class TakeSurvey:
    """Asks what the KV memory looks like."""

    request_id: int


Question = CountTokens | TakeSurvey
"""Gets one Answered or Failed."""

Command = Submit | Cancel | Question


@dataclass(frozen=True)
class Loading:
    """The fraction of the model that is loaded, from 0 to 1."""

    fraction: float


@dataclass(frozen=True)
class Loaded:
    """The model is ready.

    engine: "paged" or "contiguous". context: tokens one sequence can hold.
    notice: a sentence for the user, such as why this is not the engine they expected.
    tuning: what was measured on this machine while loading, None if nothing was.
    """

    engine: str
    context: int
    notice: str | None
    tuning: TuningReport | None


@dataclass(frozen=True)
class Fatal:
    """The model cannot be loaded, or the engine cannot go on; the process ends."""

    error: OctavoError


@dataclass(frozen=True)
class Crashed:
    """An exception that nobody foresaw, as its last line and its traceback; the process ends."""

    summary: str
    traceback: str


@dataclass(frozen=True)
class TextDelta:
    """The next piece of an answer: whole characters, no part of a stop string."""

    request_id: int
    index: int
    text: str


@dataclass(frozen=True)
class Notice:
    """A sentence for the user about how a request is answered."""

    request_id: int
    text: str


@dataclass(frozen=True)
class Finished:
    """One answer is complete.

    token_ids: everything that was generated, a stop string included; text: without the stop string.
    kv: KV memory of the engine when the answer had ended.
    """

    request_id: int
    index: int
    text: str
    token_ids: tuple[int, ...]
    reason: FinishReason
    stats: SequenceStats
    kv: KvStats


@dataclass(frozen=True)
class Failed:
    """A request that gets no (further) answer; its last event."""

    request_id: int
    error: OctavoError


@dataclass(frozen=True)
class Answered:
    """To a question: the number of tokens, or the survey."""

    request_id: int
    value: int | PoolSurvey


TextEvent = TextDelta | PrefillEvent | Notice | Finished | Failed
"""What a request produces: any number of events, then one Finished for each of its n answers, or one Failed."""

Report = Loading | Loaded | Fatal | Crashed | TextEvent | Answered
"""All that a worker sends."""
