"""Byte-level BPE from a tokenizer.json: the tokenizer of GPT-2, Llama 3, Qwen and SmolLM."""

from __future__ import annotations

from models.conversion.checkpoint_json import JsonObject
from models.conversion.pre_tokenizers import pre_tokenizer_name
from models.conversion.vocabulary import NORMAL, Token, Vocabulary

_SPACE = "Ġ"
"""How GPT-2 spells a space."""


def byte_level_vocabulary(tokenizer: JsonObject) -> Vocabulary:
    """The vocabulary without its added tokens.

    Raises ConversionError if the file is damaged, or cuts text in a way that llama.cpp does not know.
    """
    model = tokenizer.nested("model")
    pre = pre_tokenizer_name(tokenizer)
    return Vocabulary("gpt2", pre, {index: Token(text, NORMAL) for text, index in token_ids(model)}, merges_of(model))


def token_ids(model: JsonObject) -> list[tuple[str, int]]:
    """Texts and ids of the tokens of a BPE model."""
    vocabulary = model.nested("vocab")
    return [(text, vocabulary.whole(text, least=0)) for text in vocabulary.values]


def merges_of(model: JsonObject) -> tuple[str, ...]:
    """Pairs with a space between, as GGUF has them; a tokenizer.json has them so too, or as lists of two."""
    merges = tuple(_merge(model, merge) for merge in model.array("merges"))
    if not merges:
        raise model.damaged("it has no merges")
    return merges


def _merge(model: JsonObject, merge: object) -> str:
    if isinstance(merge, list) and len(merge) == 2 and all(isinstance(part, str) for part in merge):
        return " ".join(part.replace(" ", _SPACE) for part in merge)
    if isinstance(merge, str) and merge.count(" ") == 1:
        return merge
    raise model.damaged("one of its merges is no pair")
