"""A lane: one way of running a model, as the comparison sees it. It answers requests and tells times and memory.

A lane has one or more variants, engines that differ in a setting that its user would choose by trying, such as
flash attention. Each measurement is made with every variant, the faster one counts, and the record holds all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from engine.messages import TextRequest
from engine.sequence import KvStats

OnText = Callable[[str], object]
"""Receives the pieces of an answer while it is generated; of n answers, those of the first. It returns at once."""

Stopped = Callable[[], bool]
"""Whether the user wants the request that runs to end; asked several times a second."""


class RequestStopped(Exception):
    """`ask` ended early because `stopped` said so."""


class Times(NamedTuple):
    """Seconds from the submission of a request. first_s: to the first token or text. end_s: to the end of all answers.

    They are the same where no more than one token was generated.
    """

    first_s: float
    end_s: float

    @property
    def decode_s(self) -> float:
        """From the first token to the last."""
        return self.end_s - self.first_s


@dataclass(frozen=True)
class Answer:
    """What came of one request; of n answers, in their order.

    token_ids, texts: per answer; token_ids is empty where the engine tells none (a server). generated_tokens: of all
    answers. user: measured here, by whoever waits for the answer. engine: as the engine tells them itself, prefill_s:
    from its first step on the prompt to the first token; None where it does not tell.
    prompt_tokens, reused_tokens, computed_tokens: of the first answer; None where the engine does not tell.
    guessed_tokens: generated tokens that prompt lookup had guessed, so that they were computed several at a time.
    kv: when the last answer had ended; None where the engine does not tell.
    """

    token_ids: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    generated_tokens: int
    user: Times
    engine: Times | None = None
    prefill_s: float | None = None
    prompt_tokens: int | None = None
    reused_tokens: int | None = None
    computed_tokens: int | None = None
    guessed_tokens: int = 0
    kv: KvStats | None = None


class LaneMemory(NamedTuple):
    """Bytes; None where nobody tells.

    kv_used: K and V of the tokens that the cache holds, in use or for later. kv_reserved: the slots set aside for
    them, which nothing else can have: whole blocks, or the whole window. kv_resident: physical memory behind the
    cache. process: resident size of the engine's process, with the pages of the model file that are mapped.
    """

    kv_used: int | None
    kv_reserved: int | None
    kv_resident: int | None
    process: int | None

    @property
    def waste(self) -> float | None:
        """Part of the reserved slots that holds no token, from 0 to 1."""
        if self.kv_used is None or not self.kv_reserved:
            return None
        return 1 - self.kv_used / self.kv_reserved


class Started(NamedTuple):
    """What an engine says when its model is loaded; see messages.Loaded. context: None where nobody tells."""

    engine: str
    context: int | None = None
    notice: str | None = None


class Variant(Protocol):
    """An engine that runs requests one at a time. Its methods may raise OctavoError; after that only `close` is called.

    name: what tells it from the other variants of its lane, such as "flash on"; "" where there are none.
    """

    name: str

    def start(self, on_loading: Callable[[float], object]) -> Started:
        """Load the model, with an empty cache; `on_loading` receives the fraction that is loaded."""

    def ask(self, request: TextRequest, on_text: OnText, stopped: Stopped) -> Answer:
        """Run a request to its end. Raises RequestStopped."""

    def memory(self) -> LaneMemory:
        """Memory now, between two requests."""

    def forget(self) -> None:
        """Empty the cache, so that what follows is measured as from a fresh start; may load the model anew."""

    def quit_and_come_back(self) -> bool:
        """What a user does who quits the program and starts it again; says whether the cache outlived it."""

    def close(self) -> None:
        """Give everything back; harmless when done already, and in the middle of `ask` on another thread."""


class BatchTest(NamedTuple):
    """Decode `n_tokens` tokens of each of `n_sequences` sequences together, after `depth` known tokens of their own."""

    n_sequences: int
    depth: int
    n_tokens: int

    @property
    def name(self) -> str:
        """Such as "tg64 x4 @ d512"."""
        return f"tg{self.n_tokens} x{self.n_sequences} @ d{self.depth}"


class BatchVariant(Protocol):
    """An engine that decodes several sequences together, such as llama.cpp with one of its ways to share the window.

    The errors are those of Variant. name: as there.
    """

    name: str

    def start(self, on_loading: Callable[[float], object]) -> Started | None:
        """Load the model."""

    def decode(self, test: BatchTest, stopped: Stopped) -> float:
        """Seconds from the moment when every sequence has its first token to that when all have the last.

        That makes n_sequences * n_tokens tokens. Raises RequestStopped.
        """

    def close(self) -> None:
        """Give everything back; harmless when done already."""


V = TypeVar("V", Variant, BatchVariant)


@dataclass(frozen=True)
class Lane(Generic[V]):
    """One way of running a model, under the name that tables show. Its variants are started and closed by the runner.

    bytes_needed: memory that each variant takes on this machine, 0 for one that takes none.
    """

    name: str
    variants: tuple[V, ...]
    bytes_needed: int = 0


class Lineup(NamedTuple):
    """Who takes part in what. raw: token prompts. session: messages. Each has its own engines, loaded when needed.

    The first lane is what the others are compared with; its answers in the session are the reference.
    """

    raw: tuple[Lane[Variant], ...]
    batch: tuple[Lane[BatchVariant], ...]
    session: tuple[Lane[Variant], ...]
