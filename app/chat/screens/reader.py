"""What the user does with the messages of a chat, which the transcript shows."""

from __future__ import annotations

from textual import on
from textual.binding import Binding

from app.chat.answering.thinking import parts
from app.chat.beginning import Beginning
from app.chat.conversation import Message
from app.chat.screens.shell import Shell
from app.chat.session import MessageDeletion, Session
from app.chat.widgets.composer import Composer
from app.chat.widgets.copying import copy_text
from app.chat.widgets.message_keys import Wish, key_of, keys_of
from app.chat.widgets.message_view import MessageView
from app.chat.widgets.reading_hint import ReadingHint
from app.chat.widgets.transcript import LEAVE_KEY, Transcript
from app.chat.wording.markdown_text import code_blocks
from engine.messages import Role

END_KEY = "end"
UNDO_KEY = "undo_delete"


class Reader(Shell):
    """The base of the screen that shows a chat; it composes Transcript, ReadingHint and Composer."""

    BINDINGS = [  # noqa: RUF012 - Textual declares it so
        Binding("shift+tab", "read", "Go to the messages", show=False, id="read"),
        Binding("ctrl+end", "end", "Go to the end of the chat", show=False, id=END_KEY),
        Binding("u,alt+u", "undo_delete", "Bring deleted messages back", show=False, id=UNDO_KEY),
    ]

    def __init__(self, session: Session, beginning: Beginning) -> None:
        super().__init__(session, beginning)
        self._deletions: list[MessageDeletion] = []

    async def show_path(self) -> None:
        """The path of the chat has changed."""
        await self.query_one(Transcript).sync()

    def action_read(self) -> None:
        """From the composer to the last message, and from a message to the one before."""
        transcript = self.query_one(Transcript)
        if transcript.has_focus_within:
            transcript.action_move(-1)
        else:
            transcript.enter()

    def action_end(self) -> None:
        """Show the end, and what is added there."""
        self.query_one(Transcript).follow()

    def action_copy_reply(self) -> None:
        """Copy the last reply, without its thought."""
        if message := self._last_reply():
            copy_text(self.app, parts(message.text, is_ended=True).answer, "Reply")

    def action_copy_code(self) -> None:
        """Copy the last code block of the last reply that has one."""
        blocks = [code for message in self._replies() for code in code_blocks(message.text)]
        if blocks:
            copy_text(self.app, blocks[-1], "Code block")
        else:
            self.notify("There is no code block in this chat yet.", severity="warning", markup=False)

    async def action_undo_delete(self) -> None:
        """Bring back the messages that were deleted last, in the chat that is shown."""
        here = [deletion for deletion in self._deletions if deletion.chat_id == self.chat.chat_id]
        if not here:
            self.notify("There is nothing to bring back here.", markup=False)
            return
        with self.telling():
            self.session.undo_delete(self.chat, here[-1])
            self._deletions.remove(here[-1])
            await self.show_path()

    @on(Transcript.Noted)
    def _show_hint(self) -> None:
        view = self.focused if isinstance(self.focused, MessageView) else None
        keys = f"{keys_of(view)}  {key_of(self.query_one(Transcript), LEAVE_KEY)} back" if view else ""
        news = f"↓ new text: {key_of(self, END_KEY)}" if self.query_one(Transcript).has_news else ""
        self.query_one(ReadingHint).show(news, keys)

    @on(Transcript.Left)
    def _write_again(self) -> None:
        self.focus_chat()

    @on(MessageView.Wanted)
    async def _grant(self, event: MessageView.Wanted) -> None:
        message = self.chat.conversation.messages.get(event.message_id)
        if message is None:
            return
        with self.telling():
            match event.wish:
                case Wish.EDIT:
                    self.query_one(Composer).edit_message(message.id, message.text)
                case Wish.REGENERATE:
                    self.session.regenerate(self.chat, message.id)
                case Wish.CONTINUE:
                    self.session.resume(self.chat, message.id)
                case Wish.DELETE:
                    await self._delete(message)
                case Wish.PREVIOUS_BRANCH:
                    self.session.switch(self.chat, message.id, -1)
                    await self.show_path()
                case Wish.NEXT_BRANCH:
                    self.session.switch(self.chat, message.id, 1)
                    await self.show_path()

    async def _delete(self, message: Message) -> None:
        deletion = self.session.delete_messages(self.chat, message.id)
        self._deletions.append(deletion)
        await self.show_path()
        count = deletion.n_messages
        what = "1 message" if count == 1 else f"{count} messages"
        self.notify(f"Deleted {what}: {key_of(self, UNDO_KEY)} brings back what was deleted.", markup=False)

    def _replies(self) -> list[Message]:
        return [message for message in self.chat.conversation.path() if message.role is Role.ASSISTANT]

    def _last_reply(self) -> Message | None:
        replies = [message for message in self._replies() if message.text]
        return replies[-1] if replies else None
