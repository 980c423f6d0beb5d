"""The first run: a model to begin with, from a hub on loopback if it is not here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import OptionList, ProgressBar

import app.chat.choosing.first_run
from app.chat.beginning import Beginning
from app.chat.choosing.first_run import first_models, wants_welcome
from app.chat.preferences.settings import ChatSettings
from app.chat.preferences.settings_file import read_settings
from app.chat.screens.welcome import WelcomeScreen
from app.chat.storage.store import ChatStore
from models.catalogue import Catalogue, Origin
from models.hub.recommended import RECOMMENDED, RecommendedModel
from models.hub.reference import parse_reference
from tests.app.chat.driven import Driven, drive
from tests.hub_server import Hub
from tests.tiny_gguf import write_tiny

FIRST_RUN = Beginning(welcome=True)
WANTED = RecommendedModel("me/Tiny-GGUF:Q8_0", "Tiny", "for tests", 10**6, 64, 256)


@pytest.fixture
def tiny(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The only model that is recommended."""
    content = write_tiny(tmp_path / "tiny", weight_type="Q8_0", tokenizer="gpt2").read_bytes()
    hub.add("me/Tiny-GGUF", {"Tiny-Q8_0.gguf": content})
    monkeypatch.setattr(app.chat.choosing.first_run, "RECOMMENDED", (WANTED,))
    return content


def offered(driven: Driven) -> list[str]:
    return [str(option.prompt).split("  ")[0] or str(option.prompt).split()[0] for option in options(driven)]


def options(driven: Driven) -> list:  # type: ignore[type-arg]
    return list(driven.app.screen.query_one(OptionList).options)


async def welcomed(driven: Driven) -> None:
    assert isinstance(driven.app.screen, WelcomeScreen)
    await driven.until(lambda: options(driven))


def test_the_starter_model_is_one_key_away(starter_path: Path) -> None:
    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        assert driven.engine.opened == [], "nothing is loaded before the user has chosen"
        assert driven.shows("Starter model")
        assert driven.shows("Qwen3 0.6B")
        await driven.pilot.press("enter")
        await driven.until(lambda: driven.engine.opened)
        assert driven.app.screen is driven.screen
        assert driven.engine.opened[0][0] == starter_path
        assert driven.composer.has_focus
        await driven.send("Why?")
        await driven.until(lambda: driven.shows("An answer."))

    drive(flow, beginning=FIRST_RUN)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_download_and_chat(size: tuple[int, int], hub: Hub, tiny: bytes) -> None:
    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        await driven.pilot.press("end", "enter")
        await driven.until(lambda: driven.app.screen is driven.screen)
        (model,) = [one for one in Catalogue().models() if one.origin is Origin.PULLED]
        assert model.path.read_bytes() == tiny
        await driven.until(lambda: driven.engine.opened)
        assert driven.engine.opened[0][0] == model.path
        settings, problems = read_settings()
        assert (settings.chat.model, problems) == (model.name, [])
        assert driven.screen.chat.settings.model == model.name

    drive(flow, beginning=FIRST_RUN, size=size)


def test_a_download_can_be_stopped_and_resumed(hub: Hub, tiny: bytes) -> None:
    hub.fail("Tiny-Q8_0.gguf", stall_at=len(tiny) // 2)

    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        await driven.pilot.press("end", "enter")
        bar = driven.app.screen.query_one(ProgressBar)
        await driven.until(lambda: bar.total == len(tiny) and bar.progress > 0)
        assert driven.shows("esc stops it")
        await driven.pilot.press("escape")
        assert driven.shows("goes on where this was")
        assert not [one for one in Catalogue().models() if one.origin is Origin.PULLED]
        hub.end_stalls()
        await driven.pilot.press("enter")
        await driven.until(lambda: driven.app.screen is driven.screen)
        assert [one for one in Catalogue().models() if one.origin is Origin.PULLED]

    drive(flow, beginning=FIRST_RUN)


def test_without_a_network(hub: Hub, tiny: bytes) -> None:
    hub.close()

    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        await driven.pilot.press("end", "enter")
        await driven.until(lambda: driven.shows("cannot be reached") or driven.shows("connection"))
        assert driven.shows("octavo import FILE.gguf")
        await driven.pilot.press("escape")
        assert driven.app.screen is driven.screen

    drive(flow, beginning=FIRST_RUN, size=(120, 40))


def test_installed_models_come_first(tiny_model: Callable[..., Path]) -> None:
    model = Catalogue().add("[b]Mine[/b]", [tiny_model()], Origin.LINKED, "x")

    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        assert driven.shows("[b]Mine[/b]")
        await driven.pilot.press("enter")
        await driven.until(lambda: driven.engine.opened)
        assert driven.engine.opened[0][0] == model.path

    drive(flow, beginning=FIRST_RUN)


def test_later() -> None:
    async def flow(driven: Driven) -> None:
        await welcomed(driven)
        await driven.pilot.press("escape")
        assert driven.app.screen is driven.screen
        assert driven.composer.has_focus

    drive(flow, beginning=FIRST_RUN)


def test_when_it_is_shown(starter_path: Path) -> None:
    with ChatStore() as store:
        assert wants_welcome(store, ChatSettings())
        assert wants_welcome(store, ChatSettings(model="missing"))
        assert not wants_welcome(store, ChatSettings(model=str(starter_path)))
        chat = store.create_chat(ChatSettings())
        assert not wants_welcome(store, ChatSettings())
        store.archive(chat.id, True)
        assert not wants_welcome(store, ChatSettings())


def test_what_is_recommended() -> None:
    for model in RECOMMENDED:
        reference = parse_reference(model.reference)
        assert reference.variant
        assert str(reference) == model.reference
    downloads = [choice.download for choice in first_models() if choice.download]
    assert downloads == list(RECOMMENDED)
    assert len({model.title for model in RECOMMENDED}) == len(RECOMMENDED)
