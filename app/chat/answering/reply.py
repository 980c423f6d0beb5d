"""A reply while it is being written: its text, its times, and when it is worth saving."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from app.chat.conversation import MessageState, ReplyFigures
from engine.messages import Finished
from engine.sequence import FinishReason

_SAVE_AT = "\n\n"
"""A paragraph ends here, and goes to disk."""

_SAVE_EVERY = 2_000
"""Characters after which a paragraph without an end goes to disk too."""

_PUT_OFF_S = 30
"""After which saving is tried again where it has failed: it makes the screens wait while the file is locked."""

_THOUGHT_END = "</think"

_STATES = {
    FinishReason.STOP: MessageState.COMPLETE,
    FinishReason.LENGTH: MessageState.CUT,
    FinishReason.CANCELLED: MessageState.STOPPED,
}


@dataclass
class Reply:
    """The reply that a chat is waiting for, or receiving.

    text: so far, with what it had before if it is continued. n_saved: characters of it that are on disk.
    is_stopped: the user does not want more of it. saved_from: when it may be saved again, by time.monotonic.
    """

    chat_id: int
    message_id: int
    model: str
    text: str = ""
    n_saved: int = 0
    is_stopped: bool = False
    started: float = field(default_factory=time.monotonic)
    thought_s: float | None = None
    saved_from: float = 0.0

    def add(self, piece: str) -> bool:
        """Take in the next piece; returns whether it is time to save."""
        self.text += piece
        if self.thought_s is None and _THOUGHT_END in self.text[-len(piece) - len(_THOUGHT_END) :]:
            self.thought_s = time.monotonic() - self.started
        if time.monotonic() < self.saved_from:
            return False
        unsaved = self.text[max(0, self.n_saved - len(_SAVE_AT)) :]
        return len(unsaved) > _SAVE_EVERY or _SAVE_AT in unsaved[len(_SAVE_AT) - 1 :]

    def put_off_saving(self) -> None:
        """It could not be saved: the next pieces are not worth another try."""
        self.saved_from = time.monotonic() + _PUT_OFF_S

    def figures(self, event: Finished) -> ReplyFigures:
        """What it cost."""
        stats = event.stats
        n_timed = stats.generated_tokens - 1
        return ReplyFigures(
            model=self.model,
            generated_tokens=stats.generated_tokens,
            reused_tokens=stats.reused_tokens,
            computed_tokens=stats.computed_tokens,
            ttft_s=stats.ttft_s,
            decode_tok_s=n_timed / stats.decode_s if n_timed > 0 and stats.decode_s > 0 else None,
            thought_s=self.thought_s,
        )

    @staticmethod
    def state(event: Finished) -> MessageState:
        """How it ended."""
        return _STATES[event.reason]
