"""Which of llama.cpp's pre-tokenizers cuts text as a tokenizer.json does.

Before merges are applied, text is cut into words. A tokenizer.json says how; a GGUF file only names one of the ways
that are built into llama.cpp (llm_tokenizer_bpe in src/llama-vocab.cpp). Where none is the same, every text would be
read a little wrongly, so the conversion is refused.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.printable import quoted
from models.conversion.checkpoint_json import JsonObject
from models.errors import ConversionError

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST_WITH_SLASH = _REST.replace(r"[\r\n]*", r"[\r\n/]*", 1)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_1 = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
_CASED_2 = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"

_LLAMA_3 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}"
_QWEN_2 = rf"{_CONTRACTIONS}|{_WORD}|\p{{N}}|{_REST}"
_TEKKEN = rf"{_CASED_1}|{_CASED_2}|\p{{N}}|{_REST_WITH_SLASH}"
_GPT_4O = rf"{_CASED_1}{_CONTRACTIONS}?|{_CASED_2}{_CONTRACTIONS}?|\p{{N}}{{1,3}}|{_REST_WITH_SLASH}"
_GPT_2 = "the regular expression of GPT-2"
"""What a step of the type ByteLevel does unless told otherwise."""
_DIGITS = "each digit"


class _Cuts(NamedTuple):
    """Steps that cut text: regular expressions, and the two that are built into the tokenizers library.

    whole_words: a word that is a token is not built from merges (`ignore_merges`).
    """

    steps: tuple[str, ...]
    whole_words: bool


_NAMES = {
    _Cuts((_LLAMA_3,), whole_words=True): "llama-bpe",
    _Cuts((_LLAMA_3,), whole_words=False): "smaug-bpe",
    _Cuts((_QWEN_2,), whole_words=False): "qwen2",
    _Cuts((_TEKKEN,), whole_words=True): "tekken",
    _Cuts((_GPT_4O,), whole_words=False): "gpt-4o",
    _Cuts((_DIGITS, _GPT_2), whole_words=False): "smollm",
    _Cuts((_GPT_2,), whole_words=False): "gpt-2",
}
"""Values of tokenizer.ggml.pre."""


def pre_tokenizer_name(tokenizer: JsonObject) -> str:
    """The value of tokenizer.ggml.pre for a byte-level tokenizer.json.

    Raises ConversionError if llama.cpp cuts or normalises no text in this way.
    """
    _check_normalizer(tokenizer.nested("normalizer"))
    steps = tuple(step for part in _parts(tokenizer.nested("pre_tokenizer")) if (step := _step(part)))
    name = _NAMES.get(_Cuts(steps, bool(tokenizer.nested("model").flag("ignore_merges"))))
    if name is None:
        raise _unknown(f"cuts text with {quoted(' and '.join(steps)) if steps else 'nothing'}")
    return name


def _check_normalizer(normalizer: JsonObject) -> None:
    """NFC is let pass: nearly all text is composed already, and llama.cpp's own converter does so too."""
    for part in normalizer.nested_array("normalizers") or [normalizer]:
        kind = part.text("type")
        if kind not in ("", "NFC", "Sequence"):
            raise _unknown(f"changes text with {quoted(kind)}")


def _parts(pre_tokenizer: JsonObject) -> list[JsonObject]:
    return pre_tokenizer.nested_array("pretokenizers") if pre_tokenizer.text("type") == "Sequence" else [pre_tokenizer]


def _step(part: JsonObject) -> str | None:
    kind = part.text("type")
    if kind == "ByteLevel" and not part.flag("add_prefix_space", default=True):
        return _GPT_2 if part.flag("use_regex", default=True) else None
    if kind == "Digits" and part.flag("individual_digits"):
        return _DIGITS
    # Keeping what matches, and keeping matches and what is between them, is one when a match follows the other.
    if kind == "Split" and (part.text("behavior"), part.flag("invert")) in (("Isolated", False), ("Removed", True)):
        return part.nested("pattern").text("Regex").replace("\r", r"\r").replace("\n", r"\n")
    raise _unknown(f"has a step {quoted(kind)}" if kind else "has no steps")


def _unknown(what: str) -> ConversionError:
    return ConversionError(
        f"The tokenizer {what}, which llama.cpp does not do for any model that is converted here: look with "
        "'octavo search' for a repository that carries GGUF files."
    )
