"""What is written and not sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.chat.writing.pastes import Pastes, is_long


@dataclass(frozen=True)
class Draft:
    """text: with placeholders for pasted texts. editing: the message that it is to take the place of."""

    text: str = ""
    pastes: Pastes = field(default_factory=Pastes)
    editing: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send; a lone slash is the beginning of a command."""
        return self.text.strip() in ("", "/")

    @property
    def full_text(self) -> str:
        """The text with all that was pasted."""
        return self.pastes.expand(self.text)

    def followed_by(self, other: Draft) -> Draft:
        """Both texts in one draft, which edits what this one does."""
        if not other.text.strip():
            return self
        return Draft(f"{self.text}\n{other.full_text}", self.pastes, self.editing)


@dataclass(frozen=True)
class Desk:
    """What one chat has in the composer. before_editing: what comes back when an earlier message has been edited."""

    draft: Draft = field(default_factory=Draft)
    before_editing: Draft = field(default_factory=Draft)


class Recall:
    """A walk through what was sent before, back to the draft that it began with."""

    def __init__(self, prompts: Sequence[str], draft: Draft) -> None:
        """prompts: the newest last."""
        self._prompts = prompts
        self._draft = draft
        self._at = len(prompts)

    def older(self) -> Draft | None:
        """The prompt before; None at the oldest."""
        if self._at == 0:
            return None
        self._at -= 1
        return self._here()

    def newer(self) -> Draft | None:
        """The prompt after, at last the draft; None at the draft."""
        if self._at == len(self._prompts):
            return None
        self._at += 1
        return self._here()

    def _here(self) -> Draft:
        if self._at == len(self._prompts):
            return self._draft
        text, pastes = self._prompts[self._at], Pastes()
        return Draft(pastes.fold(text) if is_long(text) else text, pastes, self._draft.editing)
