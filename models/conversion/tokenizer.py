"""A checkpoint's tokenizer, written into the metadata of a GGUF file."""

from __future__ import annotations

from gguf import GGUFWriter

from engine.printable import quoted
from models.conversion.byte_level_bpe import byte_level_vocabulary
from models.conversion.checkpoint import checkpoint_name
from models.conversion.checkpoint_json import JsonObject
from models.conversion.sentencepiece import is_sentencepiece, sentencepiece_vocabulary, vocabulary_from_merges
from models.conversion.special_tokens import TokenizerFiles, chat_template, special_tokens
from models.conversion.vocabulary import AddedToken, Vocabulary
from models.errors import ConversionError

_MOST_DIGITS = 10
"""Of the number of a token; Python refuses to read thousands of them."""
_KEYS = {"unk": "unknown", "pad": "padding"}
"""Kinds of special tokens that GGUF spells out."""


def add_tokenizer(writer: GGUFWriter, files: TokenizerFiles, n_tokens: int) -> None:
    """Add the keys tokenizer.* of a model with n_tokens rows of embeddings.

    Raises ConversionError if there is no tokenizer, it is damaged, or llama.cpp has none that reads text alike.
    """
    vocabulary = _vocabulary(files)
    tokens = vocabulary.completed(_added_tokens(files), n_tokens)
    has_scores = vocabulary.model == "llama"
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list([token.text for token in tokens])
    writer.add_token_types([token.type for token in tokens])
    if has_scores:
        writer.add_token_scores([token.score for token in tokens])
        writer.add_add_space_prefix(files.tokenizer_config.flag("add_prefix_space", vocabulary.add_space_prefix))
    else:
        writer.add_token_merges(vocabulary.merges)
    ids = {token.text: index for index, token in enumerate(tokens)}
    special = special_tokens(files, ids, adds_bos=has_scores)
    for kind, index in special.ids.items():
        writer.add_uint32(f"tokenizer.ggml.{_KEYS.get(kind, kind)}_token_id", index)
    writer.add_add_bos_token(special.add_bos)
    writer.add_add_eos_token(special.add_eos)
    template = chat_template(files)
    if template:
        writer.add_chat_template(template)


def _vocabulary(files: TokenizerFiles) -> Vocabulary:
    if is_sentencepiece(files.folder / "tokenizer.model"):
        return sentencepiece_vocabulary(files.folder / "tokenizer.model")
    if not files.tokenizer.values:
        raise ConversionError(
            f"{quoted(checkpoint_name(files.folder))} has no tokenizer that can be converted: it needs "
            "'tokenizer.model' of sentencepiece, or 'tokenizer.json'."
        )
    model = files.tokenizer.nested("model")
    kind = model.text("type", "BPE")
    if kind != "BPE" or model.text("continuing_subword_prefix") or model.text("end_of_word_suffix"):
        raise ConversionError(
            f"The tokenizer is of the kind {quoted(kind)} that marks parts of words, and only byte-level and "
            "sentencepiece BPE are converted: look with 'octavo search' for a repository that carries GGUF files."
        )
    return (vocabulary_from_merges if model.flag("byte_fallback") else byte_level_vocabulary)(files.tokenizer)


def _added_tokens(files: TokenizerFiles) -> dict[int, AddedToken]:
    """By id, the three places where they are found one over the other."""
    spelled = JsonObject.read_if_there(files.folder / "added_tokens.json")
    added = {spelled.whole(text, least=0): AddedToken(text, special=False) for text in spelled.values}
    decoder = files.tokenizer_config.nested("added_tokens_decoder")
    for number in decoder.values:
        if number.isdecimal() and len(number) <= _MOST_DIGITS:
            added[int(number)] = _added_token(decoder.nested(number))
    for token in files.tokenizer.nested_array("added_tokens"):
        added[token.whole("id", least=0)] = _added_token(token)
    return added


def _added_token(token: JsonObject) -> AddedToken:
    return AddedToken(token.text("content"), bool(token.flag("special")))
