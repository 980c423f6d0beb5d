"""The options of `octavo run`, declared once for the command line and for the lines of a batch file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import click

from engine.config import EngineConfig, EngineKind, KvType
from engine.messages import ChatMessage, Role, TextRequest
from engine.sequence import SamplingParams
from models.folders import cache_folder

_INT_MAX = 2**31 - 1
_SEED_MAX = 2**32 - 2  # the largest 32-bit number is llama.cpp's word for "draw a seed"
_N_MAX = 64


class Real(click.FloatRange):
    """A float in a range. Unlike click's, it refuses nan, which lies in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class Words(click.types.StringParamType):
    """A string that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises click.BadParameter."""
        if not value:
            self.fail("it is empty.", param, ctx)
        return str(super().convert(value, param, ctx))


class WrongType(ValueError):
    """A value of JSON or TOML is not what its text says: "a number", "a string" …"""


def typed_value(kind: click.ParamType[Any], value: Any, option: click.Option | None = None) -> Any:
    """What the command line would make of a value of JSON or TOML. Raises WrongType or click.BadParameter.

    A number is read as click reads its digits, so that 2.5 or true is no integer here either.
    """
    if isinstance(kind, click.types.BoolParamType):
        expected, fits = "true or false", isinstance(value, bool)
    elif isinstance(kind, click.IntRange | click.FloatRange):
        expected, fits = "a number", isinstance(value, int | float) and not isinstance(value, bool)
    else:
        expected, fits = "a string", isinstance(value, str)
    if not fits:
        raise WrongType(expected)
    return kind.convert(value if isinstance(value, bool) else str(value), option, None)


def allowed(kind: click.ParamType[Any]) -> str:
    """What values an option may have, in words."""
    match kind:
        case click.types.BoolParamType():
            return "true or false"
        case click.Choice():
            return " or ".join(kind.choices)
        case click.IntRange():
            return f"a whole number from {kind.min} to {kind.max}"
        case click.FloatRange(min_open=True):
            return f"a number above {kind.min} and up to {kind.max}"
        case click.FloatRange():
            return f"a number from {kind.min} to {kind.max}"
    return "a text that is not empty"


_defaults = SamplingParams()

REQUEST_OPTIONS = (
    click.Option(
        ["--temperature"],
        type=Real(0, 100),
        default=_defaults.temperature,
        show_default=True,
        help="Randomness; 0 always takes the likeliest token.",
    ),
    click.Option(
        ["--top-k"],
        type=click.IntRange(0, _INT_MAX),
        default=_defaults.top_k,
        show_default=True,
        help="Choose among this many likeliest tokens; 0 is all.",
    ),
    click.Option(
        ["--top-p"],
        type=Real(0, 1, min_open=True),
        default=_defaults.top_p,
        show_default=True,
        help="Choose among the likeliest tokens that together have this probability.",
    ),
    click.Option(
        ["--min-p"],
        type=Real(0, 1),
        default=_defaults.min_p,
        show_default=True,
        help="Leave out tokens less likely than this fraction of the likeliest.",
    ),
    click.Option(
        ["--repeat-penalty"],
        type=Real(0.01, 100),
        default=_defaults.repeat_penalty,
        show_default=True,
        help="Above 1 makes repetition less likely.",
    ),
    click.Option(["--seed"], type=click.IntRange(0, _SEED_MAX), help="Same seed, same answer."),
    click.Option(["--max-tokens"], type=click.IntRange(1, _INT_MAX), help="Longest answer, in tokens."),
    click.Option(["--stop"], type=Words(), multiple=True, help="End the answer before this text; repeatable."),
    click.Option(["--system"], type=Words(), help="System message."),
    click.Option(["--raw"], is_flag=True, help="Continue the prompt as it stands, without the chat template."),
    click.Option(
        ["-n", "n"],
        type=click.IntRange(1, _N_MAX),
        default=1,
        show_default=True,
        metavar="N",
        help="Answers to one prompt, computed together.",
    ),
)
"""Options that may differ from request to request."""

ENGINE_OPTIONS = (
    click.Option(
        ["--engine"], type=click.Choice([kind.value for kind in EngineKind]), help="Paged KV cache, or llama.cpp's own."
    ),
    click.Option(["--context"], type=click.IntRange(1, _INT_MAX), help="Tokens that prompt and answer may take."),
    click.Option(["--threads"], type=click.IntRange(1, 1024), help="CPU threads."),
    click.Option(["--device"], type=Words(), help="Device to compute on, or HOST:PORT of a ggml RPC server."),
    click.Option(
        ["--kv-type"],
        type=click.Choice([kind.value for kind in KvType]),
        default=KvType.F16.value,
        show_default=True,
        help="Store keys and values as f16, or in half the memory as q8_0; a notice says which of them can be.",
    ),
)
"""Options that hold for as long as the model is loaded."""


@dataclass(frozen=True)
class RequestOptions:
    """Values of REQUEST_OPTIONS. Raises click.UsageError when they contradict each other."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    seed: int | None
    max_tokens: int | None
    stop: tuple[str, ...]
    system: str | None
    raw: bool
    n: int

    def __post_init__(self) -> None:
        if self.raw and self.system:
            raise click.UsageError("A system message needs the chat template, which raw leaves out: drop one of them.")

    def ask(self, prompt: str) -> TextRequest:
        """A request that answers `prompt`, or continues it when `raw` is set. Raises PromptError."""
        return self._request(prompt) if self.raw else self.chat((ChatMessage(Role.USER, prompt),))

    def chat(self, messages: tuple[ChatMessage, ...]) -> TextRequest:
        """A request for the next message; a system message among `messages` wins over `system`. Raises PromptError."""
        if self.raw:
            raise click.UsageError("Messages need the chat template, which raw leaves out: give a prompt.")
        if self.system and not any(message.role == Role.SYSTEM for message in messages):
            messages = (ChatMessage(Role.SYSTEM, self.system), *messages)
        return self._request(messages)

    def _request(self, prompt: str | tuple[ChatMessage, ...]) -> TextRequest:
        sampling = SamplingParams(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat_penalty=self.repeat_penalty,
            seed=self.seed,
        )
        return TextRequest(prompt, sampling, max_tokens=self.max_tokens, stop=self.stop, n=self.n)


def engine_config(
    engine: str | None, context: int | None, threads: int | None, device: str | None, kv_type: str
) -> EngineConfig:
    """From the values of ENGINE_OPTIONS."""
    return EngineConfig(
        kind=EngineKind(engine) if engine else None,
        context=context,
        threads=threads,
        device=device,
        kv_type=KvType(kv_type),
        tuning_file=str(cache_folder() / "tuning.json"),
    )
