"""What the user sends: messages, and the commands of app/chat/slash.py, each a method here."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.chat.attachments import message_text
from app.chat.branches import branch_choices, last_branching
from app.chat.conversation import Message
from app.chat.draft import Draft
from app.chat.errors import ComposeError
from app.chat.export import free_path, to_json, to_markdown, write_export
from app.chat.files import quoted_path
from app.chat.markdown_text import code_blocks
from app.chat.message_texts import CONTINUABLE
from app.chat.model_choices import model_choices
from app.chat.screens.picker import PickerScreen
from app.chat.screens.settings import SettingsScreen
from app.chat.settings import ChatSettings
from app.chat.slash import DEFAULT, Invocation, Known, SlashCommand, as_text, parse
from app.chat.thinking import parts
from app.chat.widgets.composer import Composer
from app.chat.widgets.copying import copy_text
from app.chat.widgets.sidebar import Sidebar
from app.chat.widgets.transcript import Transcript
from engine.errors import OctavoError
from engine.messages import Role
from engine.printable import one_line, quoted
from models.catalogue import Catalogue
from models.locate import locate

if TYPE_CHECKING:
    from app.chat.app import ChatApp
    from app.chat.screens.chat import ChatScreen

_THINKING = {"on": True, "off": False, "auto": None}


class ChatCommands:
    """Acts on the chat that a screen shows. All methods but `submit` may raise OctavoError, and change nothing then."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._session = screen.session
        self.known = Known(models=_installed, titles=self._titles, settings=lambda: screen.chat.settings)

    async def submit(self, draft: Draft) -> None:
        """Send what was written, or carry it out; it goes back to the composer if that fails."""
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
        if draft.editing is not None:
            self._session.edit(self._screen.chat, draft.editing, text)
        else:
            self._session.send(self._screen.chat, text)
            self._composer.rename_chat(self._screen.chat.chat_id)

    # --- models and settings ---

    def choose_model(self, name: str = "") -> None:
        """Take a model for this chat, or choose one from a list."""
        if name:
            self._use_model(name)
            return
        picker = PickerScreen(
            "Model of this chat",
            model_choices,
            current=self._model_in_use(),
            empty="No models are installed: 'octavo pull USER/REPO' downloads one.",
        )
        self._screen.app.push_screen(picker, self._use_chosen)

    def _model_in_use(self) -> str | None:
        with contextlib.suppress(OctavoError):
            path = locate(self._screen.chat.settings.model)
            return next((model.name for model in Catalogue().models() if model.path == path), None)
        return None

    def _use_chosen(self, name: str | None) -> None:
        if name is not None:
            with self._screen.telling():
                self._use_model(name)

    def _use_model(self, name: str) -> None:
        self.apply(replace(self._screen.chat.settings, model=name))

    def apply(self, settings: ChatSettings) -> None:
        """Let this chat have other settings, and load what they ask for."""
        if settings.model != self._screen.chat.settings.model:
            locate(settings.model)
        self._session.change_settings(self._screen.chat, settings)
        self._session.prepare(self._screen.chat)

    def set(self, argument: str = "") -> None:
        """Change a setting, tell its value, or show all."""
        name, _, text = argument.partition(" ")
        settings, text = self._screen.chat.settings, text.strip()
        if not name:
            self._show_settings()
            return
        changed = settings.with_text(name, "" if text == DEFAULT else text)
        if text:
            self.apply(changed)
        value = getattr(self._screen.chat.settings, name)
        self._tell(f"{name} is {'the default' if value is None else one_line(str(value))}.")

    def _show_settings(self) -> None:
        app: ChatApp = self._screen.app  # type: ignore[assignment]

        def save_defaults(settings: ChatSettings) -> None:
            app.change_settings(replace(app.settings, chat=settings))

        chat, defaults = self._screen.chat.settings, self._session.defaults
        app.push_screen(SettingsScreen(chat, self.apply, defaults, save_defaults))

    def set_system(self, text: str) -> None:
        """Set the system prompt, or put it into the composer to be edited."""
        settings = self._screen.chat.settings
        if text:
            self.apply(replace(settings, system=text))
            self._tell("The system prompt holds from the next reply on; '/set system default' takes it away.")
        elif settings.system:
            self._composer.put(f"/system {settings.system}")
        else:
            raise ComposeError("This chat has no system prompt: write one after /system.")

    def think(self, word: str) -> None:
        """Let a reasoning model think, or not, or as it likes."""
        if word.lower() not in _THINKING:
            raise ComposeError(f"/think cannot be {quoted(word, 40)}: give on, off or auto.")
        self.apply(replace(self._screen.chat.settings, thinking=_THINKING[word.lower()]))
        self._tell(f"Thinking is {word.lower()} from the next reply on.")

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
        await self._screen.query_one(Transcript).sync()

    async def _show_branch(self, leaf: str | None) -> None:
        if leaf is not None:
            with self._screen.telling():
                self._session.reveal(self._screen.chat, int(leaf))
                await self._screen.query_one(Transcript).sync()

    def copy(self, what: str) -> None:
        """Copy the last reply or its last code block."""
        if what and what.lower() != "code":
            raise ComposeError(f"/copy cannot take {quoted(what, 40)}: give code, or nothing for the whole reply.")
        path = self._screen.chat.conversation.path()
        reply = next((one for one in reversed(path) if one.role is Role.ASSISTANT and one.text), None)
        if reply is None:
            raise ComposeError("There is no reply to copy yet.")
        text, blocks = parts(reply.text, is_ended=True).answer, code_blocks(reply.text)
        if what and not blocks:
            raise ComposeError("The last reply has no code block: /copy copies all of it.")
        copy_text(self._screen.app, blocks[-1] if what else text, "Code block" if what else "Reply")

    # --- chats ---

    async def new_chat(self) -> None:
        """Begin a new chat."""
        await self._screen.action_new_chat()

    def search(self, words: str) -> None:
        """Search all chats."""
        self._screen.action_search(words)

    def rename(self, title: str) -> None:
        """Give the chat a title."""
        self._session.rename(self._screen.chat, " ".join(title.split()))

    def delete(self) -> None:
        """Delete the chat."""
        if self._screen.chat.is_draft:
            raise ComposeError("This chat is empty: there is nothing to delete.")
        self._screen.query_one(Sidebar).delete(self._screen.chat.chat_id, self._screen.chat.title)

    def save(self, name: str) -> None:
        """Write the chat to a file."""
        chat = self._screen.chat
        path = (self._composer.folder / Path(name).expanduser()) if name else None
        if path is None:
            path = free_path(self._composer.folder, chat.title, ".md")
        elif path.is_dir():
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

    @property
    def _composer(self) -> Composer:
        return self._screen.query_one(Composer)

    def _last(self, otherwise: str) -> Message:
        conversation = self._screen.chat.conversation
        if conversation.leaf is None:
            raise ComposeError(otherwise)
        return conversation.messages[conversation.leaf]

    def _titles(self) -> list[str]:
        with contextlib.suppress(OctavoError):
            return [chat.title for chat in self._session.store.chats() if chat.title]
        return []

    def _tell(self, text: str) -> None:
        self._screen.notify(text, markup=False)


def _installed() -> list[str]:
    with contextlib.suppress(OctavoError):
        return [model.name for model in Catalogue().models()]
    return []
