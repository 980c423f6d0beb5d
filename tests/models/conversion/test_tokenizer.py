"""Tokenizers of checkpoints in GGUF: texts become the tokens that the checkpoint's files say, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.errors import OctavoError
from engine.gguf_file import GgufFile
from engine.messages import ChatMessage
from engine.tokenizer import Tokenizer
from models.errors import ConversionError
from tests.tiny_checkpoint import (
    BYTE_LEVEL,
    MERGES,
    PIECES,
    QWEN_2_REGEX,
    byte_level_tokenizer,
    convert,
    sentencepiece_model,
    split_by,
    write_checkpoint,
)
from tests.tiny_gguf import BYTE, CHATML, CONTROL, UNKNOWN, UNUSED

USER_DEFINED = 4

LLAMA_3_REGEX = QWEN_2_REGEX.replace(r"\p{N}|", r"\p{N}{1,3}|")
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN_REGEX = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}*{SMALL}+|[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}+{SMALL}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT_4O_REGEX = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}*{SMALL}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}+{SMALL}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DIGITS = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}


def tokenizer_of(tmp_path: Path, **options: Any) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer of a converted checkpoint, and the file's metadata."""
    checkpoint, out = write_checkpoint(tmp_path / "model", **options), tmp_path / "model.gguf"
    convert(checkpoint.folder, out)
    return Tokenizer(str(out)), dict(GgufFile.open(out).metadata)


def spelled(metadata: Mapping[str, Any], ids: tuple[int, ...]) -> list[str]:
    return [metadata["tokenizer.ggml.tokens"][i] for i in ids]


PRE_TOKENIZERS = {
    # name: how text is cut, whether whole words are looked up, and what becomes of "12 xyz foBar"
    "llama-bpe": (split_by(LLAMA_3_REGEX), True, ["12", "Ġ", "x", "y", "z", "Ġ", "f", "oB", "a", "r"]),
    "smaug-bpe": (split_by(LLAMA_3_REGEX), False, ["12", "Ġ", "x", "y", "z", "Ġ", "f", "oB", "a", "r"]),
    "qwen2": (split_by(QWEN_2_REGEX), False, ["1", "2", "Ġ", "x", "y", "z", "Ġ", "f", "oB", "a", "r"]),
    "tekken": (split_by(TEKKEN_REGEX), True, ["1", "2", "Ġ", "x", "y", "z", "Ġ", "f", "o", "B", "a", "r"]),
    "gpt-4o": (split_by(GPT_4O_REGEX), False, ["12", "Ġ", "x", "y", "z", "Ġ", "f", "o", "B", "a", "r"]),
    "smollm": (DIGITS, False, ["1", "2", "Ġ", "x", "y", "z", "Ġ", "f", "oB", "a", "r"]),
    "gpt-2": (BYTE_LEVEL, False, ["12", "Ġ", "x", "y", "z", "Ġ", "f", "oB", "a", "r"]),
}


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_text_is_cut_as_the_tokenizer_says(tmp_path: Path, name: str) -> None:
    steps, whole_words, tokens = PRE_TOKENIZERS[name]
    tokenizer, metadata = tokenizer_of(tmp_path, tokenizer=byte_level_tokenizer(steps, ignore_merges=whole_words))
    assert metadata["tokenizer.ggml.pre"] == name
    assert spelled(metadata, tokenizer.encode_raw("12 xyz foBar")) == tokens
    assert spelled(metadata, tokenizer.encode_raw("xyz")) == (["xyz"] if whole_words else ["x", "y", "z"])
    assert spelled(metadata, tokenizer.encode_raw("hello the")) == ["hello", "Ġthe"]


def test_a_pattern_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    """With real line breaks in it, and as the parts to keep of what is otherwise removed."""
    steps = split_by(LLAMA_3_REGEX.replace(r"\r", "\r").replace(r"\n", "\n"))
    steps["pretokenizers"][0] |= {"behavior": "Removed", "invert": True}
    _, metadata = tokenizer_of(tmp_path, tokenizer=byte_level_tokenizer(steps, ignore_merges=True))
    assert metadata["tokenizer.ggml.pre"] == "llama-bpe"


@pytest.mark.parametrize(
    "tokenizer",
    [
        byte_level_tokenizer(split_by(r"\p{N}{1,4}|.")),
        byte_level_tokenizer(split_by(QWEN_2_REGEX), ignore_merges=True),
        byte_level_tokenizer(BYTE_LEVEL | {"add_prefix_space": True}),
        byte_level_tokenizer({"type": "Whitespace"}),
        byte_level_tokenizer() | {"normalizer": {"type": "Lowercase"}},
        byte_level_tokenizer() | {"pre_tokenizer": None},
        byte_level_tokenizer(type="Unigram"),
        byte_level_tokenizer(end_of_word_suffix="</w>"),
        sentencepiece_model(model_type=1),
        sentencepiece_model([piece for piece in PIECES if piece[0] != "<0x41>"] + [("A", 0.0, 1)]),
    ],
    ids=[
        *("a new pattern", "whole words with Qwen's", "a space before", "other steps", "a normalizer", "no steps"),
        *("unigram in JSON", "suffixes", "unigram", "no byte tokens"),
    ],
)
def test_what_llama_cpp_would_read_otherwise_is_refused(tmp_path: Path, tokenizer: dict[str, Any] | bytes) -> None:
    with pytest.raises(ConversionError, match=r"The tokenizer .*octavo search"):
        tokenizer_of(tmp_path, tokenizer=tokenizer)


def test_nfc_is_let_pass(tmp_path: Path) -> None:
    tokenizer_of(tmp_path, tokenizer=byte_level_tokenizer() | {"normalizer": {"type": "NFC"}})


def test_merges_may_be_lists(tmp_path: Path) -> None:
    pairs = [merge.split(" ") for merge in MERGES]
    _, metadata = tokenizer_of(tmp_path, tokenizer=byte_level_tokenizer(merges=pairs))
    assert list(metadata["tokenizer.ggml.merges"]) == MERGES


def test_added_tokens_are_markers_or_text(tmp_path: Path) -> None:
    """Special ones, and those that look it, are control tokens; others are text that is never cut."""
    tokenizer, metadata = tokenizer_of(tmp_path)
    types = dict(zip(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"], strict=True))
    assert (types["<|end|>"], types["<|start|>"], types["<think>"]) == (CONTROL, CONTROL, USER_DEFINED)
    (think,) = tokenizer.encode_raw("<think>")
    assert tokenizer.piece(think) == b"<think>"


def test_a_number_of_thousands_of_digits_is_no_token(tmp_path: Path) -> None:
    """Python refuses to read it."""
    added = {"9" * 5000: {"content": "<beyond>"}, "267": {"content": "<THINK>"}}
    tokenizer = byte_level_tokenizer()
    del tokenizer["added_tokens"][2]
    _, metadata = tokenizer_of(
        tmp_path,
        tokenizer=tokenizer,
        config={"vocab_size": 268},
        tokenizer_config={"added_tokens_decoder": added},
    )
    assert metadata["tokenizer.ggml.tokens"][267] == "<THINK>"


def test_rows_without_a_token_become_unused_ones(tmp_path: Path) -> None:
    """Embeddings are often padded to a round number; added tokens without a row are left out."""
    crowded = byte_level_tokenizer()
    crowded["added_tokens"].append({"id": 300, "content": "<beyond>", "special": True})
    tokenizer, metadata = tokenizer_of(tmp_path, tokenizer=crowded, config={"vocab_size": 290})
    assert tokenizer.n_vocab == 290
    assert metadata["tokenizer.ggml.tokens"][289] == "[PAD289]"
    assert metadata["tokenizer.ggml.token_type"][289] == UNUSED


def test_sentencepiece(tmp_path: Path) -> None:
    """'hello' by scores: he, ll, hell, hello, then the space; what has no piece is spelled in bytes."""
    tokenizer, metadata = tokenizer_of(tmp_path, tokenizer=sentencepiece_model(), config={"bos_token_id": 1})
    assert spelled(metadata, tokenizer.encode_raw("hello the é")) == [
        *("<s>", "▁hello", "▁the", "▁", "<0xC3>", "<0xA9>"),
    ]
    assert list(metadata["tokenizer.ggml.token_type"][:4]) == [UNKNOWN, CONTROL, CONTROL, BYTE]


@pytest.mark.parametrize(
    "options",
    [
        {"tokenizer": sentencepiece_model([*PIECES, ("▁▁▁", 0.0, USER_DEFINED)])},
        {
            "tokenizer": sentencepiece_model(),
            "tokenizer_config": {"added_tokens_decoder": {str(len(PIECES)): {"content": "▁▁▁", "special": False}}},
        },
    ],
    ids=["a piece", "an added token"],
)
def test_user_defined_text_of_sentencepiece_has_real_spaces(tmp_path: Path, options: dict[str, Any]) -> None:
    tokenizer, metadata = tokenizer_of(tmp_path, config={"vocab_size": len(PIECES) + 1}, **options)
    assert len(PIECES) in tokenizer.encode_raw("a   a")
    assert metadata["tokenizer.ggml.token_type"][len(PIECES)] == USER_DEFINED


def json_from_pieces(**parts: Any) -> dict[str, Any]:
    """The tokenizer.json that is made from PIECES: a merge for each way to make a word of two others."""
    words = {text: score for text, score, kind in PIECES if kind == 1}
    pairs = [(word[:i], word[i:]) for word in words for i in range(1, len(word))]
    merges = [pair for pair in pairs if all(part in words for part in pair)]
    merges.sort(key=lambda pair: -words["".join(pair)])
    return {
        "added_tokens": [{"id": i, "content": PIECES[i][0], "special": True} for i in range(3)],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "model": {
            "type": "BPE",
            "unk_token": "<unk>",
            "byte_fallback": True,
            "vocab": {piece[0]: index for index, piece in enumerate(PIECES)},
            "merges": [" ".join(pair) for pair in merges],
        },
    } | parts


def test_more_pieces_than_any_model_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.conversion.sentencepiece.MOST_TOKENS", len(PIECES) - 1)
    with pytest.raises(ConversionError, match=rf"more than {len(PIECES) - 1} tokens"):
        tokenizer_of(tmp_path, tokenizer=sentencepiece_model())


def test_merges_stand_in_for_scores(tmp_path: Path) -> None:
    """A tokenizer.json made from a sentencepiece model reads every text as that model does."""
    by_score, _ = tokenizer_of(tmp_path / "1", tokenizer=sentencepiece_model(), config={"bos_token_id": 1})
    by_merge, metadata = tokenizer_of(tmp_path / "2", tokenizer=json_from_pieces(), config={"bos_token_id": 1})
    for text in ("hello the world", "othello hell ", "  the\nthe", "ll the hehe thell", "é <s>"):
        assert by_merge.encode_raw(text) == by_score.encode_raw(text)
    assert list(metadata["tokenizer.ggml.token_type"][:4]) == [UNKNOWN, CONTROL, CONTROL, BYTE]


@pytest.mark.parametrize(
    ("options", "has_space"),
    [
        ({"tokenizer": sentencepiece_model()}, True),
        ({"tokenizer": sentencepiece_model(add_dummy_prefix=False)}, False),
        ({"tokenizer": sentencepiece_model(), "tokenizer_config": {"add_prefix_space": False}}, False),
        ({"tokenizer": json_from_pieces()}, True),
        ({"tokenizer": json_from_pieces(normalizer=None)}, False),
        (
            {
                "tokenizer": json_from_pieces(
                    normalizer=None,
                    pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False},
                )
            },
            True,
        ),
    ],
    ids=["model", "model without", "config says no", "normalizer", "none", "Metaspace"],
)
def test_a_space_before_the_text(tmp_path: Path, options: dict[str, Any], has_space: bool) -> None:
    tokenizer, metadata = tokenizer_of(tmp_path, **options)
    assert spelled(metadata, tokenizer.encode_raw("hello"))[-1] == ("▁hello" if has_space else "hello")


TEMPLATE = [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
BOS_FIRST = {"type": "Sequence", "processors": [BYTE_LEVEL, {"type": "TemplateProcessing", "single": TEMPLATE}]}


@pytest.mark.parametrize(
    ("post_processor", "tokenizer_config", "begins"),
    [
        (None, {}, False),
        (None, {"bos_token": "<|start|>"}, False),
        (None, {"bos_token": "<|start|>", "add_bos_token": True}, True),
        (BOS_FIRST, {}, True),
        (BOS_FIRST, {"bos_token": {"content": "<|start|>"}}, True),
        (BOS_FIRST, {"bos_token": "<|start|>", "add_bos_token": False}, False),
        (None, {"bos_token": None, "add_bos_token": True}, False),
    ],
)
def test_whether_a_text_begins_with_bos(
    tmp_path: Path, post_processor: Any, tokenizer_config: dict[str, Any], begins: bool
) -> None:
    tokenizer, metadata = tokenizer_of(
        tmp_path,
        tokenizer=byte_level_tokenizer() | {"post_processor": post_processor},
        tokenizer_config=tokenizer_config,
    )
    tokens = spelled(metadata, tokenizer.encode_raw("hello"))
    assert tokens == (["<|start|>", "hello"] if begins else ["hello"])


def test_tokens_that_end_an_answer(tmp_path: Path) -> None:
    """tokenizer_config.json names the first; generation_config.json has more."""
    checkpoint = write_checkpoint(tmp_path / "model", tokenizer_config={"eos_token": "<|end|>", "pad_token": "<think>"})
    (checkpoint.folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 265, 6]}))
    convert(checkpoint.folder, tmp_path / "model.gguf")
    tokenizer = Tokenizer(str(tmp_path / "model.gguf"))
    assert tokenizer.eos_token == "<|end|>"
    assert tokenizer.stop_tokens == {5, 265, 6}
    assert GgufFile.open(tmp_path / "model.gguf").metadata["tokenizer.ggml.padding_token_id"] == 267


def test_without_a_token_that_ends_a_text_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="which token ends a text"):
        tokenizer_of(tmp_path, config={"eos_token_id": None})


@pytest.mark.parametrize("place", ["string", "named", "jinja", "json", "none"])
def test_chat_template(tmp_path: Path, place: str) -> None:
    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": "{{ tools }}"}]
    configs = {"string": {"chat_template": CHATML}, "named": {"chat_template": named}, "jinja": {"chat_template": "no"}}
    checkpoint = write_checkpoint(tmp_path / "model", tokenizer_config=configs.get(place))
    if place == "jinja":
        (checkpoint.folder / "chat_template.jinja").write_text(CHATML)
    if place == "json":
        (checkpoint.folder / "chat_template.json").write_text(json.dumps({"chat_template": CHATML}))
    convert(checkpoint.folder, tmp_path / "model.gguf")
    tokenizer = Tokenizer(str(tmp_path / "model.gguf"))
    assert tokenizer.chat_template == (None if place == "none" else CHATML)
    if place == "none":
        with pytest.raises(OctavoError, match="no chat template"):
            tokenizer.encode_chat([ChatMessage("user", "hello")])
    else:
        assert tokenizer.encode_chat([ChatMessage("user", "hello")])


def test_tokens_of_tiktoken_under_the_name_of_sentencepiece_are_passed_over(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model")
    (checkpoint.folder / "tokenizer.model").write_text("IQ== 0\nIg== 1\n")
    convert(checkpoint.folder, tmp_path / "model.gguf")
    assert GgufFile.open(tmp_path / "model.gguf").metadata["tokenizer.ggml.model"] == "gpt2"
