"""Every key of the app: that it has a name and does something, and what happens when the user changes it."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import pytest
from textual.dom import DOMNode

import app.chat
from app.chat.preferences.keys import OwnBinding, key_name, keymap, own_bindings
from app.chat.preferences.settings import AppSettings
from app.chat.screens.help import HelpScreen
from tests.app.chat.driven import Driven, drive

for module in pkgutil.walk_packages(app.chat.__path__, "app.chat."):
    importlib.import_module(module.name)
BINDINGS = own_bindings()


@pytest.mark.parametrize("binding", BINDINGS, ids=lambda one: f"{one.owner.__name__}-{one.id}")
def test_a_binding(binding: OwnBinding) -> None:
    """By its id it can be changed, its description is in the help, and its action is there."""
    assert binding.id
    assert binding.description
    node: type[DOMNode] = binding.owner
    (action,) = {one.action for one in node.__dict__["BINDINGS"] if one.id == binding.id}
    name = action.partition("(")[0]
    if not name.startswith(("app.", "screen.")):
        assert hasattr(node, f"action_{name}") or hasattr(node, f"_action_{name}"), name


def test_ids_are_unique() -> None:
    assert [name for name, count in Counter(binding.id for binding in BINDINGS).items() if count > 1] == []


def test_all_keys_can_be_written_in_the_file_as_they_are() -> None:
    usual = {binding.id: ",".join(binding.keys) for binding in BINDINGS}
    assert keymap(usual, BINDINGS) == (usual, [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stopp": "ctrl+r"}, "'stopp' is no action: is it stop?"),
        ({"stop": "control-x"}, "'control-x' for stop is no key"),
        ({"stop": "ctrl+"}, "is no key"),
        ({"stop": "escape,,f5"}, "'' for stop is no key"),
        ({"new_chat": "ctrl+q"}, "new_chat and quit would share a key"),
        ({"new_chat": "ctrl+g"}, "new_chat and external_editor would share a key"),
        ({"new_chat": "ctrl+r", "model": "f9,ctrl+r"}, "model and new_chat would share a key"),
    ],
)
def test_what_cannot_be(changes: dict[str, str], words: str) -> None:
    keys, problems = keymap(changes, BINDINGS)
    (problem,) = problems
    assert words in problem
    assert list(keys) == list(changes)[: len(changes) - 1]


def test_what_can_be() -> None:
    swapped = {"new_chat": "ctrl+o", "model": "ctrl+n", "help": "?,f1", "send": "ctrl+s", "newline": "enter"}
    assert keymap(swapped, BINDINGS) == (swapped, [])
    assert keymap({"stop": "f9"}, BINDINGS) == ({"stop": "f9", "copy_selection": "ctrl+c"}, [])
    assert keymap({"picker_up": "ctrl+n"}, BINDINGS).problems == [], "no list is open when a chat begins"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ctrl+j", "Ctrl-J"),
        ("escape", "Esc"),
        ("alt+enter", "Alt-Enter"),
        ("f1", "F1"),
        ("slash", "/"),
        ("e", "e"),
        ("A", "A"),
    ],
)
def test_names(key: str, name: str) -> None:
    assert key_name(key) == name


def test_changed_keys_work_and_are_in_the_help() -> None:
    changes = {"send": "ctrl+s", "newline": "enter", "help": "f8", "nonsense": "f9"}

    async def flow(driven: Driven) -> None:
        (notice,) = driven.notices
        assert "'nonsense' is no action" in notice
        await driven.type("one", "enter")
        await driven.type("two", "ctrl+s")
        assert driven.sent() == ["one\ntwo"]
        await driven.type("", "f1")
        assert not isinstance(driven.app.screen, HelpScreen)
        await driven.type("", "f8")
        assert isinstance(driven.app.screen, HelpScreen)
        rows = {binding.id: driven.app.screen._key_row(binding)[0] for binding in BINDINGS}
        assert (rows["send"], rows["help"], rows["stop"]) == ("Ctrl-S", "F8", "Esc, Ctrl-C")
        await driven.type("", "escape")
        assert driven.app.screen is driven.screen

    drive(flow, settings=AppSettings(keys=changes))
