"""Where the user writes: it grows with its text, completes commands and files, and remembers what was sent."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import SuspendNotSupported
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets.text_area import Edit, EditResult

from app.chat.errors import StoreError
from app.chat.preferences.terminal_keys import teach_textual
from app.chat.widgets.completing_area import CompletingArea
from app.chat.widgets.message_keys import key_of
from app.chat.widgets.prompt_area import PromptArea
from app.chat.writing.attachments import mentions
from app.chat.writing.draft import Desk, Draft, Recall
from app.chat.writing.editor import edited, editor_command
from app.chat.writing.history import PromptHistory
from app.chat.writing.slash import Known
from engine.errors import OctavoError
from engine.printable import one_line
from engine.units import format_bytes

teach_textual()

_LOOKED_AT = 50_000
"""Characters up to which a text is looked through for files at every key; it is sent with all of them in any case."""


class Composer(CompletingArea):
    """Posts Submitted, and is empty from then on; `restore` takes back what could not be sent."""

    BINDING_GROUP_TITLE = "Writing"
    BINDINGS: ClassVar = [
        Binding("enter", "send", "Send", id="send", show=False),
        Binding("ctrl+j,shift+enter,alt+enter", "newline", "Begin another line", id="newline", show=False),
        Binding("escape", "leave", "Close the completion, leave an earlier message as it is", id="leave", show=False),
        Binding("ctrl+g", "external_editor", "Write in your own editor", id="external_editor", show=False),
        Binding("ctrl+t", "unfold", "Unfold the pasted text at the cursor", id="unfold", show=False),
        Binding("ctrl+up", "older_prompt", "What was sent before", id="older_prompt", show=False),
        Binding("ctrl+down", "newer_prompt", "What was sent after that", id="newer_prompt", show=False),
    ]
    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 3;
        max-height: 33vh;
        border: round $primary 60%;
        &:focus { border: round $primary; }
        &.editing { border: round $warning; }
    }
    """

    @dataclass
    class Submitted(Message):
        """The user wants to send this."""

        draft: Draft

        @property
        def text(self) -> str:
            """What is written, with placeholders for pasted texts."""
            return self.draft.text

    def __init__(self, known: Known, history: PromptHistory | None = None, folder: Path | None = None) -> None:
        """known: what commands can name. folder: what relative paths start from, None is the working folder."""
        super().__init__(known, folder or Path.cwd())
        self.placeholder = "Write a message, / for commands, @ for files"
        self._history = history or PromptHistory()
        self._editing: int | None = None
        self._before_editing = Draft()
        self._desks: dict[int, Desk] = {}
        self._chat_id: int | None = None
        self._recall: Recall | None = None

    def on_unmount(self) -> None:
        """The file of the history is ours."""
        with contextlib.suppress(StoreError):
            self._history.close()

    # --- drafts ---

    @property
    def draft(self) -> Draft:
        """What is written now."""
        return Draft(self.text, self.pastes, self._editing)

    def show_chat(self, chat_id: int) -> None:
        """Keep what is written for the chat that was shown, and go on with what this one has."""
        if self._chat_id is not None:
            self._desks[self._chat_id] = Desk(self.draft, self._before_editing)
        self._chat_id = chat_id
        desk = self._desks.pop(chat_id, Desk())
        self._before_editing = desk.before_editing
        self._show(desk.draft)

    def rename_chat(self, chat_id: int) -> None:
        """The chat that is shown has another id from now on."""
        self._chat_id = chat_id

    def edit_message(self, message_id: int, text: str) -> None:
        """Let the user change a message that was sent; what is written comes back afterwards."""
        if self._editing is None:
            self._before_editing = self.draft
        self._show(Draft(text, editing=message_id))
        self.focus()

    def put(self, text: str) -> None:
        """Begin a command for the user to complete, before what is written."""
        draft = self.draft
        self._show(Draft(text, editing=draft.editing).followed_by(draft))
        self.move_cursor((0, len(text)))
        self.focus()

    def restore(self, draft: Draft) -> None:
        """Take back what could not be sent; what was written since then follows it."""
        since = self.draft
        if draft.editing is not None:
            self._before_editing = since
            self._show(draft)
        else:
            self._show(draft.followed_by(since))

    def _show(self, draft: Draft) -> None:
        self.pastes, self._editing = draft.pastes, draft.editing
        self._recall = None
        self.load_text(draft.text)
        self.move_cursor(self.document.end)
        self.stop_completing()
        self.set_class(draft.editing is not None, "editing")
        title = f"Editing an earlier message · {key_of(self, 'leave')} leaves it"
        self.border_title = None if draft.editing is None else Content(title)

    # --- sending ---

    def action_send(self) -> None:
        """Take a completion that is due, or else send what is written."""
        if (taken := self.take_due()) and (taken.goes_on or not self.text.startswith("/")):
            return
        draft = self.draft
        if draft.is_empty:
            return
        try:
            self._history.add(draft.full_text.rstrip())
        except StoreError as error:
            self.notify(str(error), severity="warning", markup=False)
        self._show(self._before_editing)
        self._before_editing = Draft()
        self.post_message(self.Submitted(draft))

    def action_newline(self) -> None:
        """Begin another line."""
        self.replace("\n", *self.selection, maintain_selection_offset=False)

    def action_leave(self) -> None:
        """Close the completion, or else leave the message that was sent as it is."""
        if not self.stop_completing():
            self._show(self._before_editing)
            self._before_editing = Draft()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What means nothing here at this moment is left to the screen."""
        if action == "leave":
            return self.is_completing or self._editing is not None
        return super().check_action(action, parameters)

    def action_external_editor(self) -> None:
        """Go on in the user's own editor."""
        try:
            command = editor_command()
            with self.app.suspend():
                text = edited(self.draft.full_text, command)
        except SuspendNotSupported:
            self.notify("This terminal cannot be lent to an editor: write here.", severity="error", markup=False)
        except OctavoError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self._show(Draft(text, editing=self._editing))

    # --- history ---

    def action_cursor_up(self, select: bool = False) -> None:
        """From the first line of the text on to what was sent before."""
        is_at_edge = self.navigator.is_first_wrapped_line(self.cursor_location)
        if is_at_edge and not select and not self.is_completing:
            self.action_older_prompt()
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """From the last line of the text on to what was sent after that."""
        is_at_edge = self.navigator.is_last_wrapped_line(self.cursor_location)
        if is_at_edge and not select and not self.is_completing and self._recall is not None:
            self.action_newer_prompt()
        else:
            super().action_cursor_down(select)

    def action_older_prompt(self) -> None:
        """What was sent before."""
        recall = self._recall or Recall(self._history.prompts(), self.draft)
        self._go(recall, recall.older())

    def action_newer_prompt(self) -> None:
        """What was sent after that, at last what was being written."""
        if self._recall is not None:
            self._go(self._recall, self._recall.newer())

    def _go(self, recall: Recall, draft: Draft | None) -> None:
        if draft is not None:
            self._show(draft)
            self._recall = recall

    def edit(self, edit: Edit) -> EditResult:
        """Whoever goes on writing has chosen this prompt."""
        self._recall = None
        return super().edit(edit)

    @on(PromptArea.Changed)
    def _show_files(self) -> None:
        """Which files will be attached."""
        text = self.text
        found = mentions(text, self.folder) if "@" in text and len(text) <= _LOOKED_AT else []
        files = {mention.path: mention.name for mention in found}
        self.border_subtitle = Content(" · ".join(f"{one_line(name)} {_size(path)}" for path, name in files.items()))


def _size(path: Path) -> str:
    try:
        return format_bytes(path.stat().st_size)
    except OSError:
        return ""
