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


class MemoryLimitError(OctavoError):
    """What was asked for does not fit the memory of the machine or device."""


class UnsupportedKvType(OctavoError):
    """The keys or values of this model cannot be stored in the number format that was asked for."""


class DeviceError(OctavoError):
    """The device does not exist, or cannot run the model."""


class EngineDied(OctavoError):
    """The engine's process ended without an answer; the next request starts a fresh one."""
