"""The commands of app/chat/writing/slash.py in Textual's command palette."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.command import DiscoveryHit, Hit, Hits, Provider

from app.chat.writing.slash import COMMANDS, SlashCommand

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


class SlashCommands(Provider):
    """Every command; one that needs an argument is put into the composer."""

    async def discover(self) -> Hits:
        """All of them."""
        for command in COMMANDS:
            yield DiscoveryHit(_title(command), partial(self._run, command), help=command.usage)

    async def search(self, query: str) -> Hits:
        """Those that are like what was typed."""
        matcher = self.matcher(query)
        for command in COMMANDS:
            text = f"{_title(command)} ({command.usage})"
            if (score := matcher.match(text)) > 0:
                yield Hit(score, matcher.highlight(text), partial(self._run, command), text=_title(command))

    async def _run(self, command: SlashCommand) -> None:
        screen: ChatScreen = self.screen  # type: ignore[assignment] # the only one with this provider
        await screen.commands.begin(command)


def _title(command: SlashCommand) -> str:
    return command.help.partition(";")[0]
