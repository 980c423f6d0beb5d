"""`octavo chat`, and `octavo` alone: the chat app."""

from __future__ import annotations

import click

from app.terminal import has_terminal, report
from engine.errors import OctavoError
from models.locate import locate


@click.command()
@click.option("--continue", "goes_on", is_flag=True, help="Open the chat with the newest message.")
@click.option("--chat", "name", metavar="TITLE", help="Open the chat of that title or number; words of it will do.")
@click.argument("model", required=False)
def chat(model: str | None, goes_on: bool, name: str | None) -> int:
    """Open the chat app; octavo alone does so too.

    MODEL is the path of a .gguf file or the name of an installed model, for a new chat or the one that is opened.
    Without it, the model of the settings answers, or the starter model.
    """
    if goes_on and name:
        raise click.UsageError("Give either --continue or --chat.")
    if not has_terminal():
        report(OctavoError('The chat app needs a terminal: octavo run "PROMPT" answers without one.'))
        return 2
    if model is not None:
        locate(model)

    from app.chat.app import ChatApp  # noqa: PLC0415 - whoever only asks for help does not wait for Textual
    from app.chat.beginning import Beginning, chat_called, latest_chat  # noqa: PLC0415
    from app.chat.choosing.first_run import wants_welcome  # noqa: PLC0415
    from app.chat.preferences.settings_file import read_settings  # noqa: PLC0415
    from app.chat.runner import run  # noqa: PLC0415
    from app.chat.storage.store import ChatStore  # noqa: PLC0415

    with ChatStore() as store:
        settings, problems = read_settings()
        chat_id = latest_chat(store) if goes_on else chat_called(store, name) if name else None
        welcome = chat_id is None and model is None and wants_welcome(store, settings.chat)
        return run(ChatApp(store, settings, beginning=Beginning(chat_id, model, welcome, tuple(problems))))
