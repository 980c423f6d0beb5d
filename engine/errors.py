"""Errors worded for people: one sentence that says what is wrong and what to do.

The engine raises them, the command line and the screens print `str(error)` as it is.
Anything else that escapes is a defect and may show a traceback.
"""


class OctavoError(Exception):
    """Base of every error that a user can cause or mend."""


class ModelFileError(OctavoError):
    """The file is missing, is no GGUF, or is damaged."""


class UnsupportedModel(OctavoError):
    """The paged engine has no graph for this model; the contiguous engine may run it."""


class UnsupportedLibrary(OctavoError):
    """The installed llama-cpp-python is not the version whose C interface was tested."""


class PromptError(OctavoError):
    """The prompt is empty, or does not fit the context window."""


class PromptTooLong(PromptError):
    """The prompt has `n_tokens` tokens, which leave no room for an answer in a context of `context` tokens."""

    def __init__(self, message: str, n_tokens: int = 0, context: int = 0) -> None:
        super().__init__(message)  # only this, and what is in __dict__, crosses to another process
        self.n_tokens = n_tokens
        self.context = context


class StepFailed(OctavoError):
    """A step had no result because of `reason`, and the requests in it have ended."""

    def __init__(self, reason: OctavoError, request_ids: frozenset[int]) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.request_ids = request_ids


class MemoryLimitError(OctavoError):
    """What was asked for does not fit the memory of the machine or device."""


class UnsupportedKvType(OctavoError):
    """The keys or values of this model cannot be stored in the number format that was asked for."""


class DeviceError(OctavoError):
    """The device does not exist, or cannot run the model."""


class EngineDied(OctavoError):
    """The engine's process ended without an answer; the next request starts a fresh one."""
