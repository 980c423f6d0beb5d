"""The keys of a message, and what the user wants with them."""

from __future__ import annotations

import enum

from textual.binding import Binding, BindingType
from textual.widget import Widget


class Wish(enum.StrEnum):
    """What the user wants done with a message; the chat is not the message's own to change."""

    EDIT = "edit"
    REGENERATE = "regenerate"
    CONTINUE = "continue"
    DELETE = "delete"
    PREVIOUS_BRANCH = "previous_branch"
    NEXT_BRANCH = "next_branch"


CONTINUE_KEY = "message_continue"

MESSAGE_BINDINGS: list[BindingType] = [
    Binding("e", "wish('edit')", "Edit as another branch", show=False, id="message_edit"),
    Binding("r", "wish('regenerate')", "Another reply", show=False, id="message_regenerate"),
    Binding("g", "wish('continue')", "Go on with a reply", show=False, id=CONTINUE_KEY),
    Binding("c", "copy", "Copy the message", show=False, id="message_copy"),
    Binding("y", "copy_code", "Copy the next code block", show=False, id="message_copy_code"),
    Binding("enter,space", "fold", "Unfold or fold", show=False, id="message_fold"),
    Binding(
        "left,left_square_bracket", "wish('previous_branch')", "Branch before", show=False, id="message_previous_branch"
    ),
    Binding("right,right_square_bracket", "wish('next_branch')", "Branch after", show=False, id="message_next_branch"),
    Binding("d,delete", "wish('delete')", "Delete with what follows", show=False, id="message_delete"),
]

_WORDS = {
    "message_edit": "edit",
    "message_regenerate": "again",
    CONTINUE_KEY: "continue",
    "message_copy": "copy",
    "message_copy_code": "code",
    "message_fold": "fold",
    "message_previous_branch": "‹",
    "message_next_branch": "›",
    "message_delete": "delete",
}
"""As short as they must be to stand in one line."""


def key_of(widget: Widget, binding_id: str) -> str:
    """The first key of a binding of this widget, as the user has set it, also while it has no focus."""
    bindings = widget._bindings.copy()
    bindings.apply_keymap(widget.app._keymap)
    found = (one for _, one in bindings if one.id == binding_id)
    return next((widget.app.get_key_display(binding) for binding in found), "")


def keys_of(widget: Widget) -> str:
    """The keys of the widget in focus that do something at this moment, each with a word: "e edit  c copy"."""
    shown: dict[str, str] = {}
    for active in widget.screen.active_bindings.values():
        word = _WORDS.get(active.binding.id or "")
        if active.node is widget and active.enabled and word:
            shown.setdefault(word, widget.app.get_key_display(active.binding))
    return "  ".join(f"{key} {word}" for word, key in shown.items())
