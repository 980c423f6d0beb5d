"""The full record of a comparison: plain data that `--save` and `--json` write. `record.schema.json` describes it.

Seconds, bytes and tokens throughout. A figure that nobody tells is None, null in JSON. What tables show is computed
from the samples, in results.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.compare.lanes import LaneMemory, Times

VERSION = 1
"""Of the schema: higher where a program that reads the old one would be misled."""


@dataclass(frozen=True)
class MachineFacts:
    """cores: physical performance cores that this process may use; processors: logical ones of every kind."""

    processor: str
    cores: int
    processors: int
    device: str
    system: str
    octavo: str
    llama_cpp_python: str
    python: str


@dataclass(frozen=True)
class Busy:
    """Processors that other programs used, before and while it was measured. is_busy: enough to disturb."""

    others_before: float | None
    others_during: float | None
    is_busy: bool | None


@dataclass(frozen=True)
class ModelFacts:
    """sha256: of each of its files. quantization: such as "Q4_K_M"."""

    file: str
    sha256: tuple[str, ...]
    n_bytes: int
    architecture: str
    quantization: str
    parameters: int


@dataclass(frozen=True)
class Settings:
    """What was asked for. context: the window of every lane. threads: None is each engine's own choice."""

    mode: str
    repeat: int
    context: int
    threads: int | None
    kv_type: str


@dataclass(frozen=True)
class LaneFacts:
    """A variant that was loaded for a phase, "raw", "batch" or "session". See lanes.Started for the rest."""

    phase: str
    lane: str
    variant: str
    engine: str
    context: int | None
    notice: str | None


@dataclass(frozen=True)
class RawSample:
    """One measurement of raw speed. test: such as "pp512 @ d2048" or "tg64 x4 @ d512". round: pairs have the same.

    engine_s: seconds for `n_tokens`, as the engine tells, or else user_s. user_s: as whoever waits for it sees it.
    """

    test: str
    lane: str
    variant: str
    round: int
    n_tokens: int
    engine_s: float
    user_s: float | None = None


@dataclass(frozen=True)
class StepSample:
    """One step of a session. user, engine, prefill_s and the numbers of tokens are those of lanes.Answer.

    answers: to the one question; several are drawn, a single one is greedy, and compared with the reference where
    the lane tells its tokens. memory: after the step. cache_survived: of a step that quits first, whether the cache
    outlived that.
    """

    step: str
    lane: str
    variant: str
    repeat: int
    answers: int
    tells_tokens: bool
    generated_tokens: int
    user: Times
    engine: Times | None
    prefill_s: float | None
    prompt_tokens: int | None
    reused_tokens: int | None
    computed_tokens: int | None
    guessed_tokens: int
    memory: LaneMemory | None
    cache_survived: bool | None = None


@dataclass(frozen=True)
class Difference:
    """Where an answer leaves the reference's, the one of the first lane that answered.

    position: in tokens, from 0. token, reference_token: what stands there, None where the answer has ended. gap:
    llama.cpp's logit of the reference's token, less that of the other one, with all that came before; near 0, rounding
    decides. None where it is not known.
    """

    step: str
    lane: str
    variant: str
    position: int
    token: int | None
    reference_token: int | None
    gap: float | None = None


@dataclass(frozen=True)
class LaneError:
    """Why a variant did not finish a phase. test: which it was at, "" while it was loaded."""

    phase: str
    lane: str
    variant: str
    test: str
    message: str


@dataclass
class Record:
    """Everything that was measured so far. The runner adds to it.

    lanes: names in the order of tables; the first is what others are compared with. is_complete: nobody stopped it.
    notes: sentences on how it was measured, such as that the lanes did not fit in memory together.
    """

    created: str
    machine: MachineFacts
    model: ModelFacts
    settings: Settings
    lanes: tuple[str, ...]
    busy: Busy | None = None
    is_complete: bool = False
    variants: list[LaneFacts] = field(default_factory=list)
    raw: list[RawSample] = field(default_factory=list)
    session: list[StepSample] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    errors: list[LaneError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The object that JSON holds, without the results."""
        return {"schema": "octavo compare", "version": VERSION, **plain(self)}


def plain(value: Any) -> Any:
    """Dataclasses and named tuples as dicts, at any depth."""
    if hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
