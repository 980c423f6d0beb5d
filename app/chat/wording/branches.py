"""The branches of a chat, to choose from."""

from __future__ import annotations

from app.chat.answering.thinking import parts
from app.chat.choosing.choice import Choice
from app.chat.conversation import Conversation, Message
from engine.messages import Role

_LONGEST = 70


def last_branching(conversation: Conversation) -> Message | None:
    """The last message of the path that has alternatives."""
    path = conversation.path()
    return next((message for message in reversed(path) if len(conversation.siblings(message.id)) > 1), None)


def branch_choices(conversation: Conversation) -> list[Choice]:
    """Every branch by the id of its last message, with the last question in it and where it leaves the others."""
    leaves = [message_id for message_id in sorted(conversation.messages) if not conversation.children(message_id)]
    return [_choice(conversation, leaf) for leaf in leaves]


def _choice(conversation: Conversation, leaf: int) -> Choice:
    path = conversation.path(leaf)
    places = []
    for message in path:
        siblings = conversation.siblings(message.id)
        if len(siblings) > 1:
            places.append(f"‹{siblings.index(message.id) + 1}/{len(siblings)}›")
    last_question = next((message for message in reversed(path) if message.role is Role.USER), path[-1])
    details = [" ".join(places), f"{len(path)} messages", f"ends: {_beginning(path[-1])}"]
    return Choice(str(leaf), _beginning(last_question), " · ".join(filter(None, details)))


def _beginning(message: Message) -> str:
    text = " ".join(parts(message.text, is_ended=True).answer.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
