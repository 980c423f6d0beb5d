"""A group of commands that are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from engine.errors import OctavoError
from engine.printable import one_line


class LazyGroup(click.Group):
    """Commands that bring much with them cost others nothing: huggingface_hub alone takes half a second to import.

    lazy: where further commands are, as "module:function", by name.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, also of those not imported yet."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now if need be."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, function = self._lazy[cmd_name].partition(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), function)
        except ValueError as error:
            raise OctavoError(
                f"huggingface_hub does not understand its variables ({one_line(str(error))}): correct HF_ENDPOINT, or "
                "whichever of them you have set."
            ) from None
        return command
