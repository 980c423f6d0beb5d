"""What every engine does, so that the paged and the contiguous one can stand in for each other."""

from __future__ import annotations

from typing import Protocol

from engine.sequence import KvStats, PrefillEvent, Request, TokenEvent
from engine.survey import PoolSurvey

Event = TokenEvent | PrefillEvent


class Engine(Protocol):
    """Token ids in, events out. Not thread-safe but for `interrupt`: one thread calls submit, step and cancel."""

    name: str
    """"paged" or "contiguous"."""
    context: int
    """Tokens that one sequence can hold, prompt and answer together."""
    context_train: int
    """Tokens that the model was trained for."""

    def submit(self, request: Request) -> int:
        """Queue a request and return its id.

        Raises PromptError when the prompt is empty or longer than the context.
        """

    def step(self) -> list[Event]:
        """Do one bounded piece of work (a forward pass) and return what it produced. Raises StepFailed."""

    def interrupt(self) -> None:
        """Stop the step that runs, or else the next one, soon; it produces nothing. Any thread may call this."""

    def cancel(self, request_id: int, index: int | None = None) -> list[Event]:
        """End all answers of a request, or one of them; returns their last events. Unknown ids are ignored."""

    def has_work(self) -> bool:
        """Whether `step` would do something."""

    def kv_stats(self) -> KvStats:
        """KV memory now."""

    def survey(self) -> PoolSurvey:
        """KV memory now, block by block."""

    def close(self) -> None:
        """Free native memory. The engine must not be used afterwards."""
