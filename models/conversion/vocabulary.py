"""A vocabulary on its way into GGUF, whichever files it comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.printable import quoted
from models.errors import ConversionError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""Types of tokens, with the numbers that GGUF and sentencepiece share."""

MOST_TOKENS = 2**20
"""Four times as many as the largest vocabulary so far. All are held in memory before the weights are seen."""

METASPACE = "▁"
"""How sentencepiece spells a space."""

_MARKER = re.compile(r"<\|.*\|>|<｜.*｜>|<pad>", re.DOTALL)
"""Added tokens that are markers of a chat even where they are not declared special, as in llama.cpp's converter."""

_ADDED_SCORE = -1000.0
"""Of sentencepiece tokens that no merge yields; the value that llama.cpp's converter gives them."""


class Token(NamedTuple):
    """A token. text: in the vocabulary's own spelling. score: of sentencepiece; higher is merged first."""

    text: str
    type: int
    score: float = _ADDED_SCORE


class AddedToken(NamedTuple):
    """A token that was put on top of a vocabulary, or declared to be special."""

    text: str
    special: bool


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id. model: "gpt2" (byte-level BPE) or "llama" (sentencepiece), as GGUF names them.

    pre: the pre-tokenizer. merges: of byte-level BPE, the first one first. add_space_prefix: a space is put before
    the text, None is not said.
    """

    model: str
    pre: str
    tokens: Mapping[int, Token]
    merges: Sequence[str] = field(default=())
    add_space_prefix: bool | None = None

    def completed(self, added: Mapping[int, AddedToken], n: int) -> list[Token]:
        """All n tokens: with added ones in their places, and unused ones where the model has rows for none.

        Raises ConversionError if there are more than n, or two of the same text, which llama.cpp does not survive.
        """
        if self.tokens and max(self.tokens) >= n:
            raise ConversionError(
                f"The tokenizer has {max(self.tokens) + 1} tokens, more than the {n} of the model: they are not of the "
                "same checkpoint."
            )
        tokens = [self.tokens.get(index, Token(f"[PAD{index}]", UNUSED)) for index in range(n)]
        for index, token in added.items():
            if 0 <= index < n:
                tokens[index] = self._added(token, tokens[index])
        ids: dict[str, int] = {}
        for index, (text, _, _) in enumerate(tokens):
            if ids.setdefault(text, index) != index:
                raise ConversionError(
                    f"The tokenizer has the token {quoted(text)} twice, as number {ids[text]} and {index}: use a "
                    "checkpoint with an undamaged tokenizer."
                )
        return tokens

    def _added(self, token: AddedToken, present: Token) -> Token:
        if present.text == token.text and present.type == UNKNOWN:
            return present
        if token.special or _MARKER.fullmatch(token.text):
            return Token(token.text, CONTROL)
        return Token(text_with_spaces(token.text) if self.model == "llama" else token.text, USER_DEFINED)


def text_with_spaces(text: str) -> str:
    """A user-defined token of sentencepiece as llama.cpp looks for it, in text whose spaces are still spaces."""
    return text.replace(METASPACE, " ")
