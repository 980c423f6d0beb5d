"""From a chat to a request: the path of messages that the model reads, and how it is to answer."""

from __future__ import annotations

from app.chat.conversation import Conversation, Message
from app.chat.preferences.settings import ChatSettings
from engine.messages import ChatMessage, Role, TextRequest
from engine.sequence import Priority, SamplingParams

TITLE_WORDS = 6
_TITLE_TOKENS = 24
_ASK_TITLE = (
    f"Write a title for this conversation, of at most {TITLE_WORDS} words, in its language. Answer with the title only."
)
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
    return _side_request(conversation, settings, to, owner, _ASK_TITLE, _TITLE_TOKENS, Priority.BACKGROUND)


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


def clean_title(text: str) -> str:
    """The title in a model's answer, which may put it in quotes, in Markdown, or before an explanation; or nothing."""
    lines = [line.strip(" \t#*_\"'“”„«»`.:") for line in text.splitlines()]
    title = " ".join(next((line for line in lines if line), "").split())
    title = title.removeprefix("Title:").strip(" \"'*")
    return title if len(title.split()) <= 2 * TITLE_WORDS else ""


def provisional_title(text: str) -> str:
    """A title until there is a better one: the beginning of what the user wrote."""
    words = " ".join(text.split())
    return words if len(words) <= 48 else words[:47].rsplit(" ", 1)[0] + "…"
