"""Text into token ids and token ids into bytes, by the vocabulary in a GGUF file."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import weakref
from collections.abc import Sequence
from typing import NamedTuple

from engine.chat_template import ChatTemplate
from engine.control_tokens import ControlTokens
from engine.errors import ModelFileError, PromptError
from engine.gguf_file import GgufFile
from engine.messages import ChatMessage
from engine.native import captured_log, llama, reason_in
from engine.printable import printable

__all__ = ["ChatMessage", "ChatPrompt", "Tokenizer"]

_NO_TOKEN = -1
_C_SPACES = " \t\n\v\f\r"
_SHORT_PIECE = 64

_OPENING = re.compile(r"<think(?:ing)?>\s*$")
"""What templates write to make a reasoning model begin with a thought."""


class ChatPrompt(NamedTuple):
    """Token ids of a chat up to where the assistant's next turn begins.

    opening: what the template has written of that turn, so that it belongs to the answer as people read it: the mark
    that begins a thought, or nothing.
    """

    token_ids: tuple[int, ...]
    opening: str


class Tokenizer:
    """llama.cpp's vocabulary of one model file, opened without its weights.

    n_vocab: number of tokens. context_train: tokens the model was trained to attend to, 0 if the file does not say.
    bos_token, eos_token: their spellings, empty if the vocabulary has none.
    stop_tokens: every end-of-generation token, not only the end of sequence.
    chat_template: Jinja source from the file, None if it has none.

    Raises ModelFileError when the file cannot be read or has no vocabulary.
    """

    def __init__(self, path: str):
        file = GgufFile.open(path)
        model = _open_vocabulary(path)
        self._free = weakref.finalize(self, llama.llama_model_free, model)
        self._vocab = vocab = llama.llama_model_get_vocab(model)
        if llama.llama_vocab_type(vocab) == llama.LLAMA_VOCAB_TYPE_NONE:
            raise ModelFileError(f"The model file '{printable(path)}' has no vocabulary: choose a text model.")
        self.n_vocab: int = llama.llama_vocab_n_tokens(vocab)
        context = file.metadata.get(f"{file.architecture}.context_length")
        self.context_train = context if isinstance(context, int) else 0
        self._bos: int = llama.llama_vocab_bos(vocab)
        self._adds_bos: bool = llama.llama_vocab_get_add_bos(vocab) and self._bos != _NO_TOKEN
        self.bos_token = self._spelling(self._bos)
        self.eos_token = self._spelling(llama.llama_vocab_eos(vocab))
        self.stop_tokens = frozenset(i for i in range(self.n_vocab) if llama.llama_vocab_is_eog(vocab, i))
        source = llama.llama_model_chat_template(model, None)
        self.chat_template: str | None = source.decode("utf-8", "replace") if source else None
        self._attributes = [llama.llama_vocab_get_attr(vocab, i) for i in range(self.n_vocab)]
        self._control_tokens = self._find_control_tokens()

    def encode_raw(self, text: str) -> tuple[int, ...]:
        """Token ids of a prompt that is completed as it stands.

        Control tokens spelled in the text are honoured. It starts with at most one BOS: what the text spells
        itself is not added again. A lone surrogate, which is no character, becomes U+FFFD.
        """
        return self._with_bos(self._encode(_characters(text), parse_special=True))

    def encode_chat(
        self, messages: Sequence[ChatMessage], *, thinking: bool | None = None, continued: str = ""
    ) -> ChatPrompt:
        """The prompt for the assistant's next turn, or for the rest of it where it has `continued` as its beginning.

        Control tokens come from the template alone: what a message spells stays text (engine/control_tokens.py).
        The prompt starts with exactly one BOS where the vocabulary wants one. `thinking` is passed on to the
        template. A lone surrogate becomes U+FFFD.

        Raises PromptError when there is no template or it refuses the messages, as ChatTemplate.render says, and
        ModelFileError when it is no valid Jinja.
        """
        template = self._template
        clean = [ChatMessage(message.role, _characters(message.content)) for message in messages]
        marked = self._control_tokens.mark(clean, template.source)
        rendered = template.render(marked.messages, thinking=thinking)
        fragments = self._control_tokens.split(rendered, marked.marks)
        opening = _OPENING.search(rendered)
        opened = opening[0] if opening else ""
        if continued:
            fragments.append(_characters(continued.removeprefix(opened)))
        return ChatPrompt(self._with_bos(self._encode_fragments(fragments)), opened)

    def piece(self, token_id: int) -> bytes:
        """Bytes that the token adds to a text, possibly a part of a character; none for a control token.

        Raises IndexError for an id that is not in the vocabulary.
        """
        if not 0 <= token_id < self.n_vocab:
            raise IndexError(f"token id {token_id} is not in the vocabulary of {self.n_vocab} tokens")
        size = _SHORT_PIECE
        while True:
            buffer = ctypes.create_string_buffer(size)
            length: int = llama.llama_token_to_piece(self._vocab, token_id, buffer, size, 0, False)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def close(self) -> None:
        """Free the vocabulary; harmless when done already. The tokenizer must not be used afterwards."""
        self._free()

    @functools.cached_property
    def _template(self) -> ChatTemplate:
        if self.chat_template is None:
            raise PromptError("The model has no chat template: use it without one (--raw).")
        return ChatTemplate(self.chat_template, self.bos_token, self.eos_token)

    def _spelling(self, token_id: int) -> str:
        if token_id == _NO_TOKEN:
            return ""
        text: bytes = llama.llama_vocab_get_text(self._vocab, token_id)
        return text.decode("utf-8", "replace")

    def _find_control_tokens(self) -> ControlTokens:
        """Sort the vocabulary as llama.cpp's tokenizer does.

        With parse_special off it passes over the tokens that are control or unknown, but still finds the
        user-defined ones. Those are mostly text (runs of spaces, HTML), but some converters, and llama.cpp itself
        for gpt-oss, put markers such as `<|start|>` among them.
        """
        never_text = llama.LLAMA_TOKEN_ATTR_CONTROL | llama.LLAMA_TOKEN_ATTR_UNKNOWN
        ids: dict[str, int] = {}
        markup: list[str] = []
        for token_id, attributes in enumerate(self._attributes):
            if attributes & never_text:
                ids[self._spelling(token_id)] = token_id
            elif attributes & llama.LLAMA_TOKEN_ATTR_USER_DEFINED:
                spelling = self._spelling(token_id)
                if _is_marker(spelling, self.chat_template or ""):
                    markup.append(spelling)
        ids.pop("", None)
        return ControlTokens(ids, markup)

    def _encode_fragments(self, fragments: Sequence[int | str]) -> list[int]:
        tokens: list[int] = []
        before: int | str | None = None
        for fragment in fragments:
            if isinstance(fragment, int):
                tokens.append(fragment)
            elif isinstance(before, str):
                tokens += self._encode_continued(fragment)
            elif before is not None and self._attributes[before] & llama.LLAMA_TOKEN_ATTR_RSTRIP:
                tokens += self._encode(fragment.lstrip(_C_SPACES))
            else:
                tokens += self._encode(fragment)
            before = fragment
        return tokens

    def _encode_continued(self, text: str) -> list[int]:
        """Encode text in the middle of a line, without the space that SentencePiece puts in front of a text."""
        newline = self._encode("\n")
        return self._encode("\n" + text)[len(newline) :]

    def _with_bos(self, tokens: list[int]) -> tuple[int, ...]:
        start = 0
        while start < len(tokens) and tokens[start] == self._bos:
            start += 1
        wanted = self._adds_bos or start > 0
        return (*([self._bos] if wanted else []), *tokens[start:])

    def _encode(self, text: str, *, parse_special: bool = False) -> list[int]:
        data = text.encode()
        capacity = len(data) + 2  # a token has at least one byte, but for the space put in front
        while True:
            buffer = (llama.llama_token * capacity)()
            n: int = llama.llama_tokenize(self._vocab, data, len(data), buffer, capacity, False, parse_special)
            if n >= 0:
                return list(buffer[:n])
            capacity = -n


def _open_vocabulary(path: str) -> int:
    params = llama.llama_model_default_params()
    params.vocab_only = True
    with captured_log() as log:
        model: int | None = llama.llama_model_load_from_file(os.fsencode(path), params)
    if model:
        return model
    raise ModelFileError(f"llama.cpp cannot read the vocabulary of '{printable(path)}'{reason_in(log)}.")


def _characters(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates, as JSON can bring them, replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_marker(spelling: str, template: str) -> bool:
    """Whether a user-defined token is markup of a chat: `<|…|>`, or any bracketed word that the template prints."""
    if spelling.startswith("<|") and spelling.endswith("|>"):
        return True
    return len(spelling) > 2 and spelling[0] + spelling[-1] in {"<>", "[]"} and spelling in template
