"""Words that are one token each, so that a random prompt can be sent as text and still have as many tokens as meant."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import ModelFileError
from engine.printable import quoted

_MOST = 4096
"""The first ones in a vocabulary are the most frequent, and likely to be one token in other vocabularies too."""
_LEAST = 2
_WORD = re.compile(rb" [a-z]{2,}")


class Words:
    """Words of one vocabulary, each with a space in front; between others like it, each stays one token."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words

    @classmethod
    def read(cls, path: Path) -> Words:
        """From the vocabulary of a model file, which a process of its own reads.

        Raises ModelFileError, also for a vocabulary that has hardly any words.
        """
        code = f"import sys; sys.path[:] = {sys.path!r}; from app.compare.words import main; main(sys.argv[1])"
        result = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,  # Ctrl-C in the terminal is for us alone
            check=False,
        )
        words = json.loads(result.stdout) if result.returncode == 0 else []
        if len(words) < _LEAST:
            raise ModelFileError(
                f"The vocabulary of {quoted(str(path))} has no words that a text for a server could be made of: "
                "compare without --endpoint."
            )
        return cls(words)

    def text(self, numbers: Sequence[int]) -> str:
        """One word for each number, equal ones for equal numbers: as many tokens, as the vocabulary counts them.

        Some vocabularies add a token at the beginning, or split the first word.
        """
        return "".join([self._words[number % len(self._words)] for number in numbers])


def main(path: str) -> None:
    """Print the words as a JSON list."""
    from engine.tokenizer import Tokenizer  # noqa: PLC0415 - native code, in its own process only

    tokenizer = Tokenizer(path)
    words: list[str] = []
    for token in range(tokenizer.n_vocab):
        piece = tokenizer.piece(token)
        if _WORD.fullmatch(piece) and tokenizer.encode_raw(3 * piece.decode())[-2:] == (token, token):
            words.append(piece.decode())
            if len(words) == _MOST:
                break
    print(json.dumps(words))
