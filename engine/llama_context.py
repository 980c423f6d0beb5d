"""A model and its contiguous KV cache, both of llama.cpp, for one sequence."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.config import EngineConfig, KvType
from engine.devices import Device, find_device
from engine.errors import MemoryLimitError, ModelFileError, UnsupportedKvType, UnsupportedModel
from engine.gguf_file import GgufFile
from engine.interrupt import Interrupt, StepInterrupted
from engine.kv_size import kv_heads
from engine.kv_types import KvTypes, ggml_type, head_bytes
from engine.memory import available_memory, choose_context
from engine.native import LOG_ERROR, LOG_INFO, captured_log, llama, reason_in
from engine.printable import printable, quoted
from engine.prompt_states import State, common_length
from engine.threads import usable_cores

CHUNK = 512
"""Most tokens of one forward pass: llama.cpp's default physical batch, beyond which it gains nothing."""

_RESERVED = re.compile(r"(?:KV|RS) buffer size = +([\d.]+) MiB")
"""How llama.cpp 0.3.36 logs each buffer that it allocates for keys and values or for recurrent states."""

_ABORTED = 2
"""What llama_decode returns when its abort callback has said yes."""

_REFUSED_TYPE = re.compile(r"V cache (?:requires|was requested)|cache type \S+ with block size")
"""How llama.cpp 0.3.36 logs that it cannot store keys or values as it was told to."""


class LlamaContext:
    """Owns llama.cpp's model and context, and knows which tokens the cache holds.

    context: tokens the sequence can hold. context_train: tokens the model was trained for.
    n_vocab: length of a row of logits. held: token ids whose K and V
    are in the cache, in position order. types: what keys and values are stored as.
    bytes_per_token: see `kv_bytes_per_token`. bytes_reserved: what
    llama.cpp allocated for the cache; it fills it with zeros, so all of it is resident from the start.
    interrupt: stops `decode`.
    """

    def __init__(
        self,
        path: str,
        config: EngineConfig,
        progress: Callable[[float], None],
        *,
        flash: bool | None = None,
        may_exceed_memory: bool = False,
    ) -> None:
        """Load the file at `path` and reserve the window; `progress` receives the fraction that is loaded.

        flash: flash attention on or off; None is llama.cpp's choice, which is on where values are quantized.
        Without flash attention it keeps values in F16. may_exceed_memory: weights on the CPU that do not fit are read
        from the file again and again, which is slow and works; without it, they count as memory that is taken.
        Raises ModelFileError, UnsupportedModel, UnsupportedKvType, MemoryLimitError or DeviceError.
        """
        self._context = self._model = None
        self.held: list[int] = []
        self.interrupt = Interrupt()
        file = GgufFile.open(path)
        device = find_device(config.device)
        available = available_memory()
        self._model = load_model(file, device, progress)
        try:
            self.types = KvTypes(config.kv_type, KvType.F16 if flash is False else config.kv_type)
            self.bytes_per_token = kv_bytes_per_token(file, self.types)
            self.n_vocab: int = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
            self._window: int = llama.llama_model_n_swa(self._model)
            if device.kind != "cpu":
                available = find_device(config.device).memory_free
            elif not may_exceed_memory:  # weights mapped from the file count as available, but are needed
                available = max(0, available - llama.llama_model_size(self._model))
            self.context_train: int = llama.llama_model_n_ctx_train(self._model)
            self.context = choose_context(config.context, self.context_train, max(1, self.bytes_per_token), available)
            self._context, self.bytes_reserved = new_context(
                self._model, self.context, self.types, config.threads, flash
            )
            callback = ctypes.cast(self.interrupt.callback, llama.ggml_abort_callback)
            llama.llama_set_abort_callback(self._context, callback, self.interrupt.data)
            self._memory = llama.llama_get_memory(self._context)
            if llama.llama_model_has_encoder(self._model) or not self._memory:
                raise UnsupportedModel(
                    f"'{printable(path)}' (architecture {quoted(file.architecture)}) is not a model that continues "
                    f"a text: choose a chat or text-generation model."
                )
        except BaseException:
            self.close()
            raise

    def reuse_prefix(self, prompt: Sequence[int]) -> int:
        """Keep the longest beginning of `prompt` that the cache holds, drop the rest; returns its length.

        The last token of the prompt is never kept, because its logits are wanted. A model that keeps only a
        window of positions, or a recurrent state, cannot step back, and starts from nothing.
        """
        kept = min(common_length(self.held, prompt), len(prompt) - 1)
        if kept < len(self.held):
            oldest = llama.llama_memory_seq_pos_min(self._memory, 0)
            enough = not self._window or oldest <= max(0, kept - self._window)
            if not (enough and llama.llama_memory_seq_rm(self._memory, 0, kept, -1)):
                llama.llama_memory_clear(self._memory, False)
                kept = 0
            del self.held[kept:]
        return kept

    def decode(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """Compute 1 to CHUNK tokens that follow the held ones.

        Returns the logits after the last of them, [n_vocab], in memory that the next call overwrites.
        Raises MemoryLimitError when llama.cpp finds no memory for the computation, and StepInterrupted; then `held`
        says what is left, all of it or, where a cache cannot step back, nothing.
        """
        self._compute(tokens)
        return np.ctypeslib.as_array(llama.llama_get_logits_ith(self._context, -1), (self.n_vocab,))

    def decode_all(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """`decode`, with the logits after each of the tokens, [n, n_vocab]."""
        self._compute(tokens, every=True)
        return np.ctypeslib.as_array(llama.llama_get_logits(self._context), (len(tokens), self.n_vocab))

    def _compute(self, tokens: Sequence[int], *, every: bool = False) -> None:
        ids = (llama.llama_token * len(tokens))(*tokens)
        batch = llama.llama_batch_get_one(ids, len(tokens))
        if every:
            batch.logits = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        with captured_log(LOG_ERROR) as log:
            status = llama.llama_decode(self._context, batch)
        self.interrupt.clear()
        if status == _ABORTED:
            if not llama.llama_memory_seq_rm(self._memory, 0, len(self.held), -1):
                llama.llama_memory_clear(self._memory, False)
                self.held.clear()
            raise StepInterrupted
        if status != 0:
            llama.llama_memory_clear(self._memory, False)
            self.held.clear()
            raise MemoryLimitError(
                f"llama.cpp could not compute {len(tokens)} tokens{reason_in(log)}: use a smaller --context or model."
            )
        self.held.extend(tokens)

    def state_bytes(self) -> int:
        """See StateHolder."""
        return int(llama.llama_state_seq_get_size(self._context, 0))

    def save_state(self, state: State) -> None:
        """See StateHolder. llama.cpp writes the tokens' K and V, or the recurrent state after the last of them."""
        written = llama.llama_state_seq_get_data(self._context, bytes_of(state), state.nbytes, 0)
        assert written == state.nbytes

    def restore_state(self, state: State, tokens: Sequence[int]) -> None:
        """See StateHolder."""
        llama.llama_memory_clear(self._memory, False)
        self.held.clear()
        with captured_log(LOG_ERROR):
            read = llama.llama_state_seq_set_data(self._context, bytes_of(state), state.nbytes, 0)
        if read == state.nbytes:
            self.held.extend(tokens)
        else:
            llama.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Free the context and the model; harmless when done already."""
        if self._context:
            llama.llama_free(self._context)
        if self._model:
            llama.llama_model_free(self._model)
        self._context = self._model = None


def bytes_of(state: State) -> object:
    """The same memory, as llama.cpp's functions take it."""
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


def kv_bytes_per_token(file: GgufFile, types: KvTypes) -> int:
    """Bytes of K and V of one token, over all layers; see kv_size.py.

    Raises UnsupportedKvType when a head is no whole number of blocks.
    """
    return sum(
        heads.n * (head_bytes(types.k, heads.key) + head_bytes(types.v, heads.value))
        for heads in kv_heads(file.metadata) or ()
    )


def load_model(file: GgufFile, device: Device, progress: Callable[[float], None]) -> int:
    """A llama_model of a file on a device; `progress` receives the fraction that is loaded.

    Raises UnsupportedModel or ModelFileError.
    """

    @llama.llama_progress_callback  # type: ignore[untyped-decorator]
    def on_progress(fraction: float, _user_data: object) -> bool:
        progress(fraction)
        return True

    # A list of devices ends with a null; an empty one keeps every layer on the CPU.
    handles = (ctypes.c_void_p * 2)(None if device.kind == "cpu" else device.handle, None)
    params = llama.llama_model_default_params()
    params.devices = ctypes.cast(handles, ctypes.c_void_p)
    params.n_gpu_layers = 0 if device.kind == "cpu" else -1
    params.progress_callback = on_progress
    with captured_log(LOG_ERROR) as log:
        model = llama.llama_model_load_from_file(os.fsencode(file.path), params)
    if not model and any("unknown model architecture" in line for line in log):
        raise UnsupportedModel(
            f"llama.cpp does not know the architecture {quoted(file.architecture)} of '{printable(str(file.path))}': "
            f"a newer version of Octavo may run it."
        )
    if not model:
        raise ModelFileError(f"llama.cpp cannot load '{printable(str(file.path))}'{reason_in(log)}.")
    return int(model)


def new_context(
    model: int,
    n_tokens: int,
    types: KvTypes,
    threads: int | None,
    flash: bool | None,
    *,
    n_sequences: int = 1,
    unified: bool = False,
) -> tuple[int, int]:
    """Reserve a cache of `n_tokens`; returns the llama_context and the bytes of its cache.

    unified: whether all sequences use one cache; otherwise each has an equal share. flash: as in LlamaContext.
    Raises UnsupportedKvType or MemoryLimitError.
    """
    params = llama.llama_context_default_params()
    params.n_ctx = n_tokens
    params.n_batch = params.n_ubatch = CHUNK
    params.n_seq_max, params.kv_unified = n_sequences, unified
    params.n_threads = params.n_threads_batch = threads or usable_cores()
    params.swa_full = False
    params.type_k, params.type_v = ggml_type(types.k), ggml_type(types.v)
    if flash is not None:
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash else llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    with captured_log(LOG_INFO) as log:
        context = llama.llama_init_from_model(model, params)
    if not context and any(map(_REFUSED_TYPE.search, log)):
        raise UnsupportedKvType(
            f"llama.cpp cannot store this model's keys and values as {types.k}: use --kv-type {KvType.F16}."
        )
    if not context:
        errors = [line for line in log if "failed" in line]
        raise MemoryLimitError(
            f"llama.cpp could not create a context of {n_tokens:,} tokens{reason_in(errors)}: use a smaller --context."
        )
    reserved = sum(float(match[1]) for line in log if (match := _RESERVED.search(line)))
    return int(context), round(reserved * 2**20)
