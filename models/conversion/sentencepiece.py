"""Sentencepiece vocabularies: the tokenizer of Llama 2, Mistral 7B and their like.

They come as tokenizer.model, a protocol buffer (sentencepiece_model.proto of google/sentencepiece), or as a
tokenizer.json made from one, which has merges instead of scores.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from engine.printable import quoted
from models.conversion.byte_level_bpe import merges_of, token_ids
from models.conversion.checkpoint_json import JsonObject, content_of, damaged
from models.conversion.vocabulary import (
    BYTE,
    METASPACE,
    MOST_TOKENS,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    Token,
    Vocabulary,
    text_with_spaces,
)
from models.errors import ConversionError

_FIRST_BYTE = b"\n"
"""Tag of ModelProto.pieces: field 1, of a given length."""

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
"""Fields of ModelProto."""
_TEXT, _SCORE, _TYPE = 1, 2, 3
"""Fields of ModelProto.SentencePiece."""
_MODEL_TYPE, _BPE = 3, 2
"""A field of TrainerSpec, and its value for BPE; it is unigram when it is not there."""
_ADD_DUMMY_PREFIX = 3
"""A field of NormalizerSpec, true when it is not there."""

_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


def is_sentencepiece(path: Path) -> bool:
    """Whether a tokenizer.model is one: some hold the tokens of tiktoken, as lines of text."""
    try:
        with path.open("rb") as file:
            return file.read(1) == _FIRST_BYTE
    except OSError:
        return False


def sentencepiece_vocabulary(path: Path) -> Vocabulary:
    """Read a tokenizer.model. Raises ConversionError if it is damaged, or not of a kind that llama.cpp reads alike."""
    tokens: dict[int, Token] = {}
    model_type, add_space_prefix = 1, True
    try:
        for number, value in _fields(content_of(path)):
            if len(tokens) > MOST_TOKENS:
                raise damaged(path, f"it has more than {MOST_TOKENS:,} tokens")
            if number == _PIECES and isinstance(value, bytes):
                tokens[len(tokens)] = _piece(value)
            elif number == _TRAINER and isinstance(value, bytes):
                model_type = _number(value, _MODEL_TYPE, model_type)
            elif number == _NORMALIZER and isinstance(value, bytes):
                add_space_prefix = bool(_number(value, _ADD_DUMMY_PREFIX, 1))
    except (ValueError, IndexError, struct.error):
        raise damaged(path, "it is no sentencepiece model") from None
    if model_type != _BPE:
        raise _unlike("chooses tokens by probability (unigram)")
    return _checked(tokens, add_space_prefix=add_space_prefix)


def vocabulary_from_merges(tokenizer: JsonObject) -> Vocabulary:
    """The vocabulary of a tokenizer.json that falls back to bytes, without its added tokens.

    sentencepiece joins the pair whose joint token has the highest score, a tokenizer.json the pair that comes first
    among the merges: so the score of a token is the place of its first merge, counted downwards.
    Raises ConversionError as `sentencepiece_vocabulary` does.
    """
    model = tokenizer.nested("model")
    scores: dict[str, float] = {}
    for place, merge in enumerate(merges_of(model)):
        scores.setdefault(merge.replace(" ", ""), -float(place))
    unknown, never = model.text("unk_token"), -float(len(scores) + 1)
    tokens = {}
    for text, index in token_ids(model):
        kind = BYTE if text in _BYTES else UNKNOWN if text == unknown else NORMAL
        tokens[index] = Token(text, kind, 0.0 if kind != NORMAL else scores.get(text, never))
    return _checked(tokens, add_space_prefix=_adds_space(tokenizer))


def _checked(tokens: dict[int, Token], *, add_space_prefix: bool) -> Vocabulary:
    if not {token.text for token in tokens.values() if token.type == BYTE} >= _BYTES:
        raise _unlike("has no tokens for single bytes")
    return Vocabulary("llama", "default", tokens, add_space_prefix=add_space_prefix)


def _adds_space(tokenizer: JsonObject) -> bool:
    """Whether a space is put before the text; spaces become ▁ in any case."""
    normalizer, pre_tokenizer = tokenizer.nested("normalizer"), tokenizer.nested("pre_tokenizer")
    adds = False
    for part in normalizer.nested_array("normalizers") or [normalizer]:
        kind = part.text("type")
        put = {"": METASPACE, "Prepend": part.text("prepend"), "Replace": part.text("content")}.get(kind)
        if put != METASPACE:
            raise _unlike(f"changes text with {quoted(kind)}")
        adds |= kind == "Prepend"
    kind = pre_tokenizer.text("type")
    if kind == "Metaspace":
        always = pre_tokenizer.flag("add_prefix_space", default=True)
        return pre_tokenizer.text("prepend_scheme", "always" if always else "never") != "never"
    # Cutting at spaces does nothing when they have become ▁.
    if kind and not (kind == "Split" and pre_tokenizer.nested("pattern").text("String") == " "):
        raise _unlike(f"cuts text with {quoted(kind)}")
    return adds


def _piece(data: bytes) -> Token:
    text, score, kind = "", 0.0, NORMAL
    for number, value in _fields(data):
        if number == _TEXT and isinstance(value, bytes):
            text = value.decode()
        elif number == _SCORE and isinstance(value, bytes):
            (score,) = struct.unpack("<f", value)
        elif number == _TYPE and isinstance(value, int):
            kind = value
    return Token(text_with_spaces(text) if kind == USER_DEFINED else text, kind, score)


def _number(data: bytes, field: int, default: int) -> int:
    """The last value of a field that holds a whole number."""
    values = [value for number, value in _fields(data) if number == field and isinstance(value, int)]
    return values[-1] if values else default


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of the fields of a protocol buffer message; a float is its four bytes.

    Encoding: https://protobuf.dev/programming-guides/encoding. Raises ValueError or IndexError if it is none.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        sizes = {1: 8, 5: 4}
        if wire == 2:
            size, position = _varint(data, position)
        elif wire in sizes:
            size = sizes[wire]
        else:
            raise ValueError(f"wire type {wire}")
        if size > len(data) - position:
            raise ValueError("a field lies beyond the end")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a number does not end")


def _unlike(what: str) -> ConversionError:
    return ConversionError(
        f"The tokenizer {what}, which llama.cpp does not do for the models that are converted here: look with "
        "'octavo search' for a repository that carries GGUF files."
    )
