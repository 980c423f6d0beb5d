"""Errors about what the chat app keeps on disk, worded for people like those of engine/errors.py."""

from __future__ import annotations

from engine.errors import OctavoError


class StoreError(OctavoError):
    """The stored chats cannot be read or written, or do not have what was asked for."""


class SettingsError(OctavoError):
    """A setting cannot have that value, or the file of the settings cannot be written."""


class ExportError(OctavoError):
    """A chat cannot be written to a file."""


class ComposeError(OctavoError):
    """What the user wrote cannot be sent as it is: a file that is no text, a command that is unknown or incomplete."""


class EditorError(OctavoError):
    """The external editor cannot be started, or has failed."""
