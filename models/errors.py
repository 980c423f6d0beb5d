"""Errors about models on disk and on the hub, worded for people like those of engine/errors.py."""

from __future__ import annotations

from engine.errors import ModelFileError, OctavoError


class CatalogueError(OctavoError):
    """The catalogue of installed models cannot be read or written, or does not have what was asked for."""


class NoSuchModel(ModelFileError):
    """A text is neither the path of a file nor the name of an installed model, and cannot name one on the hub."""


class ReferenceFormatError(OctavoError):
    """A text names no model on the hub: it is no user/repo, no address of a file."""


class HubError(OctavoError):
    """The hub cannot be reached, refuses, or does not have what was asked for."""


class DownloadError(OctavoError):
    """A file could not be downloaded whole: the disk is full, or what came is not what the hub announced."""


class QuantizeError(OctavoError):
    """A model cannot be quantized in the way that was asked for."""


class ConversionError(OctavoError):
    """A checkpoint cannot be converted to GGUF."""


class NotALanguageModel(OctavoError):
    """A GGUF file is readable, and holds something other than a model that writes text."""


class CopyError(OctavoError):
    """A model cannot be copied into the models folder: no room, or another file or command is in the way."""
