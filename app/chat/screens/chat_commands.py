"""What the user sends: messages, and the commands of app/chat/writing/slash.py, each a method here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.chat.conversation import Message
from app.chat.errors import ComposeError
from app.chat.export import free_path, to_json, to_markdown, write_export
from app.chat.files import quoted_path
from app.chat.screens.picker import PickerScreen
from app.chat.screens.setting_commands import SettingCommands
from app.chat.widgets.sidebar import Sidebar
from app.chat.wording.branches import branch_choices, last_branching
from app.chat.wording.message_texts import CONTINUABLE
from app.chat.writing.attachments import message_text
from app.chat.writing.draft import Draft
from app.chat.writing.slash import Invocation, Known, SlashCommand, as_text, parse
from engine.errors import OctavoError
from engine.messages import Role
from engine.printable import quoted
from models.catalogue import Catalogue

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


class ChatCommands(SettingCommands):
    """All that can be sent. All methods but `submit` may raise OctavoError, and change nothing then."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self.known = Known(models=_installed, titles=self._titles, settings=lambda: screen.chat.settings)

    async def submit(self, draft: Draft) -> None:
        """Send what was written, or carry it out; it goes back to the composer if that fails."""
        if draft.editing not in (None, *self._screen.chat.conversation.messages):
            draft = replace(draft, editing=None)  # deleted meanwhile: what was written is a message of its own
        try:
            invocation = parse(draft.text)
            if invocation is not None:
                await self.run(invocation._replace(argument=draft.pastes.expand(invocation.argument)))
            else:
                self._say(draft)
        except OctavoError as error:
            self._composer.restore(draft)
            self._screen.notify(str(error), severity="error", markup=False)

    async def begin(self, command: SlashCommand) -> None:
        """Carry a command out that has no argument; one that needs some comes into the composer."""
        if command.needs_argument:
            self._composer.put(f"/{command.name} ")
        else:
            with self._screen.telling():
                await self.run(Invocation(command, ""))

    async def run(self, invocation: Invocation) -> None:
        """Carry a command out."""
        handler = getattr(self, invocation.command.handler)
        done: Awaitable[None] | None = handler(*([invocation.argument] if invocation.command.arguments else []))
        if done is not None:
            await done

    def _say(self, draft: Draft) -> None:
        text = message_text(as_text(draft.text), draft.pastes, self._composer.folder)
        if not text.strip():
            raise ComposeError("There is nothing in what was pasted but blank lines: write something.")
        if draft.editing is not None:
            self._session.edit(self._screen.chat, draft.editing, text)
        else:
            self._session.send(self._screen.chat, text)
            self._composer.rename_chat(self._screen.chat.chat_id)

    # --- messages ---

    def regenerate(self) -> None:
        """Write the last reply again."""
        self._session.regenerate(self._screen.chat, self._last("There is nothing to answer yet: write a message.").id)

    def edit(self) -> None:
        """Put the user's last message into the composer."""
        path = self._screen.chat.conversation.path()
        message = next((one for one in reversed(path) if one.role is Role.USER), None)
        if message is None:
            raise ComposeError("You have not written anything in this chat yet.")
        self._composer.edit_message(message.id, message.text)

    def resume(self) -> None:
        """Go on with a reply that was not finished."""
        message = self._last("There is no reply to go on with.")
        if message.role is not Role.ASSISTANT or message.state not in CONTINUABLE:
            raise ComposeError("The last reply is complete: write what comes next, or /regen for another one.")
        self._session.resume(self._screen.chat, message.id)

    async def branch(self, word: str) -> None:
        """Go to a neighbouring branch, or choose one."""
        conversation = self._screen.chat.conversation
        message = last_branching(conversation)
        if message is None:
            raise ComposeError("This chat has no branches: /edit and /regen make some.")
        if not word:
            picker = PickerScreen(
                "Branches of this chat",
                lambda: branch_choices(conversation),
                current=str(conversation.leaf),
                empty="This chat has no branches.",
            )
            self._screen.app.push_screen(picker, self._show_branch)
            return
        offset = {"next": 1, "prev": -1}.get(word.lower())
        if offset is None:
            raise ComposeError(f"/branch cannot go to {quoted(word, 40)}: give next or prev, or nothing for a list.")
        if not self._session.switch(self._screen.chat, message.id, offset):
            raise ComposeError(f"There is no {'later' if offset > 0 else 'earlier'} branch here.")
        await self._screen.show_path()

    async def _show_branch(self, leaf: str | None) -> None:
        if leaf is not None:
            with self._screen.telling():
                self._session.reveal(self._screen.chat, int(leaf))
                await self._screen.show_path()

    def copy(self, what: str) -> None:
        """Copy the last reply or its last code block."""
        if what and what.lower() != "code":
            raise ComposeError(f"/copy cannot take {quoted(what, 40)}: give code, or nothing for the whole reply.")
        if not any(one.role is Role.ASSISTANT and one.text for one in self._screen.chat.conversation.path()):
            raise ComposeError("There is no reply to copy yet.")
        if what:
            self._screen.action_copy_code()
        else:
            self._screen.action_copy_reply()

    # --- chats ---

    async def new_chat(self) -> None:
        """Begin a new chat."""
        await self._screen.action_new_chat()

    def search(self, words: str) -> None:
        """Search all chats."""
        self._screen.action_search(words)

    def rename(self, title: str) -> None:
        """Give the chat a title."""
        if not title.strip():
            raise ComposeError("A title of spaces alone cannot be seen: give some words.")
        self._session.rename(self._screen.chat, title)

    def delete(self) -> None:
        """Delete the chat."""
        if self._screen.chat.is_draft:
            raise ComposeError("This chat is empty: there is nothing to delete.")
        self._screen.query_one(Sidebar).delete(self._screen.chat.chat_id, self._screen.chat.title)

    def save(self, name: str) -> None:
        """Write the chat to a file."""
        chat = self._screen.chat
        if not name.isprintable():
            raise ComposeError(f"{quoted(name, 40)} cannot be the name of a file: give another.")
        path = self._composer.folder / os.path.expanduser(name)
        if os.path.isdir(path):  # answers no where pathlib raises, as for too long a name
            path = free_path(path, chat.title, ".md")
        if path.suffix.lower() not in (".md", ".json"):
            raise ComposeError(f"{quoted(path.name)} does not say what to write: end it with .md or .json.")
        is_json = path.suffix.lower() == ".json"
        write_export(path, (to_json if is_json else to_markdown)(chat.conversation, chat.title))
        self._tell(f"Saved as {quoted_path(path)}.")

    # --- the app ---

    def stats(self) -> None:
        """Show or hide the blocks of the KV cache."""
        self._screen.action_pool()

    async def help(self) -> None:
        """Show keys and commands."""
        await self._screen.app.run_action("help")

    async def quit(self) -> None:
        """Leave."""
        await self._screen.app.run_action("quit")

    def _last(self, otherwise: str) -> Message:
        conversation = self._screen.chat.conversation
        if conversation.leaf is None:
            raise ComposeError(otherwise)
        return conversation.messages[conversation.leaf]

    def _titles(self) -> list[str]:
        with contextlib.suppress(OctavoError):
            return [chat.title for chat in self._session.store.chats() if chat.title]
        return []


def _installed() -> list[str]:
    with contextlib.suppress(OctavoError):
        return [model.name for model in Catalogue().models()]
    return []
