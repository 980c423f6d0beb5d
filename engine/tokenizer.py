"""Text into token ids and token ids into bytes, by the vocabulary in a GGUF file."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence

from engine.chat_template import ChatMessage, ChatTemplate
from engine.control_tokens import ControlTokens
from engine.errors import ModelFileError, PromptError
from engine.native import captured_log, llama

__all__ = ["ChatMessage", "Tokenizer"]

_C_SPACES = " \t\n\v\f\r"


class Tokenizer:
    """llama.cpp's vocabulary of one model file, opened without its weights.

    n_vocab: number of tokens. context_train: tokens the model was trained to attend to, 0 if the file does not say.
    bos_token, eos_token: their spellings, empty if the vocabulary has none.
    stop_tokens: every end-of-generation token, not only the end of sequence.
    chat_template: Jinja source from the file, None if it has none.

    Raises ModelFileError when the file cannot be read or holds no vocabulary.
    """

    def __init__(self, path: str):
        model = _open_vocabulary(path)
        self._free = weakref.finalize(self, llama.llama_model_free, model)
        self._vocab = llama.llama_model_get_vocab(model)
        if llama.llama_vocab_type(self._vocab) == llama.LLAMA_VOCAB_TYPE_NONE:
            raise ModelFileError(f"{path} holds no vocabulary: it cannot turn text into tokens.")
        self.n_vocab: int = llama.llama_vocab_n_tokens(self._vocab)
        self.context_train = int(_metadata(model, f"{_metadata(model, 'general.architecture')}.context_length") or 0)
        self.bos_token = self._spelling(llama.llama_vocab_bos(self._vocab))
        self.eos_token = self._spelling(llama.llama_vocab_eos(self._vocab))
        self.stop_tokens = frozenset(i for i in range(self.n_vocab) if llama.llama_vocab_is_eog(self._vocab, i))
        source = llama.llama_model_chat_template(model, None)
        self.chat_template: str | None = source.decode("utf-8", "replace") if source else None
        self._template = ChatTemplate(source, self.bos_token, self.eos_token) if self.chat_template else None
