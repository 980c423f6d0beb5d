"""From a chat to a request: the path of messages that the model reads, and how it is to answer."""

from __future__ import annotations

from dataclasses import replace

from app.chat.conversation import Conversation, Message
from app.chat.preferences.settings import ChatSettings
from app.chat.wording.titles import OPENING, TITLE_WORDS
from engine.messages import ChatMessage, Role, TextRequest
from engine.sequence import Priority, SamplingParams

_TITLE_TOKENS = 24
_ASK_TITLE = f"Name the topic of this conversation in at most {TITLE_WORDS} words, in its language."
SUMMARY_TOKENS = 400
_ASK_SUMMARY = (
    "Summarize this conversation for somebody who has to go on with it: facts, decisions, open questions, and what was "
    "asked for last. Answer with the summary only."
)


def history(conversation: Conversation, to: int | None) -> list[Message]:
    """The messages that the model reads when it answers the message `to`: the path from `start` on, if that lies on it.

    Replies that never got a word, because they failed or were stopped, are left out.
    """
    path = conversation.path(to) if to is not None else []
    ids = [message.id for message in path]
    if conversation.start in ids:
        path = path[ids.index(conversation.start) :]
    return [message for message in path if message.text.strip()]


def chat_messages(messages: list[Message], settings: ChatSettings) -> tuple[ChatMessage, ...]:
    """The same as the chat template takes them, after the system prompt."""
    system = (ChatMessage(Role.SYSTEM, settings.system),) if settings.system else ()
    return system + tuple(ChatMessage(message.role, message.text) for message in messages)


def reply_request(
    conversation: Conversation, settings: ChatSettings, to: int, owner: int, continued: str = ""
) -> TextRequest:
    """Answer the message `to`, or go on with an answer to it. Raises PromptError when there is nothing to answer."""
    return TextRequest(
        chat_messages(history(conversation, to), settings),
        SamplingParams(
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
            repeat_penalty=settings.repeat_penalty,
            seed=settings.seed,
        ),
        max_tokens=settings.max_tokens,
        owner=owner,
        thinking=settings.thinking,
        continued=continued,
    )


def title_request(conversation: Conversation, settings: ChatSettings, to: int, owner: int) -> TextRequest:
    """Ask for a title of a chat. Its own prompt is its beginning, so that nothing of it is computed again."""
    request = _side_request(conversation, settings, to, owner, _ASK_TITLE, _TITLE_TOKENS, Priority.BACKGROUND)
    return replace(request, continued=OPENING)


def summary_request(conversation: Conversation, settings: ChatSettings, to: int, owner: int) -> TextRequest:
    """Ask for a summary of a chat."""
    return _side_request(conversation, settings, to, owner, _ASK_SUMMARY, SUMMARY_TOKENS, Priority.INTERACTIVE)


def _side_request(
    conversation: Conversation,
    settings: ChatSettings,
    to: int,
    owner: int,
    question: str,
    max_tokens: int,
    priority: Priority,
) -> TextRequest:
    messages = chat_messages(history(conversation, to), settings)
    return TextRequest(
        (*messages, ChatMessage(Role.USER, question)),
        SamplingParams(temperature=0),
        max_tokens=max_tokens,
        priority=priority,
        owner=owner,
        thinking=False,
    )
