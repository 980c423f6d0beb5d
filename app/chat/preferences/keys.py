"""The keys of the app: which there are, what the user has changed about them, and how they are called.

A binding has an id, by which the table [keys] of octavo.toml names it: `stop = "ctrl+g"`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import KEY_TO_UNICODE_NAME, REPLACED_KEYS, Keys
from textual.screen import Screen

from app.chat.preferences.settings import nearest
from engine.printable import quoted

EVERYWHERE = "Everywhere"
"""Group of bindings whose owner has no name for people."""

_PACKAGE = "app.chat."
_MODIFIERS = {"ctrl": "Ctrl", "alt": "Alt", "shift": "Shift", "super": "Super", "meta": "Meta", "hyper": "Hyper"}
_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn"}
_KEYS = {key.value for key in Keys}


class OwnBinding(NamedTuple):
    """A binding that the app declares. keys: the usual ones. owner: the class that has it."""

    id: str
    keys: tuple[str, ...]
    description: str
    owner: type[DOMNode]

    @property
    def group(self) -> str:
        """Heading for people."""
        return getattr(self.owner, "BINDING_GROUP_TITLE", None) or EVERYWHERE


class Keymap(NamedTuple):
    """keys: what the user presses, by id, as Textual takes it. problems: a sentence for each entry that cannot be."""

    keys: dict[str, str]
    problems: list[str]


def own_bindings() -> list[OwnBinding]:
    """All bindings that are declared in the app's classes, class by class."""
    return [
        OwnBinding(binding.id or "", tuple(binding.key.split(",")), binding.description, owner)
        for owner in dict.fromkeys(_subclasses(DOMNode))
        if owner.__module__.startswith(_PACKAGE)
        for binding in owner.__dict__.get("BINDINGS", ())
        if isinstance(binding, Binding)
    ]


def keymap(changes: Mapping[str, str], bindings: Sequence[OwnBinding]) -> Keymap:
    """The keys that the user wants, without those that cannot be.

    Two actions that can be reached at the same moment do not share a key, unless they do so from the beginning, as
    Escape does: it closes what is open, and else stops the reply.
    """
    by_id = {binding.id: binding for binding in bindings}
    keys: dict[str, str] = {}
    problems = []
    for name, wanted in changes.items():
        pressed = [key.strip() for key in wanted.split(",")]
        wrong = next((key for key in pressed if not _is_key(key)), None)
        if name not in by_id:
            likely = " or ".join(nearest(name, by_id)[:3])
            problems.append(f"In [keys], {quoted(name, 40)} is no action: is it {likely}? /keys shows all.")
        elif wrong is not None:
            problems.append(
                f"In [keys], {quoted(wrong, 40)} for {name} is no key: write it like ctrl+r, alt+enter, f5 or escape; "
                "until then the usual one is used."
            )
        elif rival := _rival(by_id[name], pressed, keys, changes, bindings):
            problems.append(
                f"In [keys], {name} and {rival.id} would share a key: {name} keeps its usual one until one of them is "
                "changed."
            )
        else:
            keys |= _sharing(by_id[name], changes, bindings) | {name: ",".join(pressed)}
    return Keymap(keys, problems)


def key_name(key: str) -> str:
    """A key for people: "ctrl+j" is "Ctrl-J"."""
    modifiers, last = _parts(key)
    if len(last) > 1 or modifiers:
        last = _NAMES.get(last, last.capitalize())
    return "-".join([*(_MODIFIERS.get(modifier, modifier) for modifier in modifiers), last])


def _rival(
    binding: OwnBinding,
    pressed: Sequence[str],
    keys: Mapping[str, str],
    changes: Mapping[str, str],
    bindings: Sequence[OwnBinding],
) -> OwnBinding | None:
    """A binding within reach of this one that has one of these keys."""
    for other in bindings:
        if other.id == binding.id or not _meet(binding.owner, other.owner):
            continue
        taken = keys[other.id].split(",") if other.id in keys else () if other.id in changes else other.keys
        shared = {_same(key) for key in pressed} & {_same(key) for key in taken}
        if shared - {_same(key) for key in binding.keys}:
            return other
    return None


def _sharing(binding: OwnBinding, changes: Mapping[str, str], bindings: Sequence[OwnBinding]) -> dict[str, str]:
    """The keys of bindings that share one with this: Textual drops them with it, unless they are given too."""
    return {
        other.id: ",".join(other.keys)
        for other in bindings
        if other.owner is binding.owner and other.id not in changes and set(other.keys) & set(binding.keys)
    }


def _meet(one: type[DOMNode], other: type[DOMNode]) -> bool:
    """Whether bindings of both classes can be active at one moment: those of a widget, its screen and the app are."""
    if issubclass(one, other) or issubclass(other, one):
        return True
    if issubclass(one, App) or issubclass(other, App):
        return True
    return issubclass(one, Screen) != issubclass(other, Screen)


def _subclasses(base: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for subclass in base.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _parts(key: str) -> tuple[list[str], str]:
    """Modifiers, and the key or the character that it writes."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    if last in _KEYS:
        return modifiers, last
    name = REPLACED_KEYS.get(last, last)
    try:
        return modifiers, unicodedata.lookup(KEY_TO_UNICODE_NAME.get(name, name.replace("_", " ")))
    except KeyError:
        return modifiers, last


def _is_key(key: str) -> bool:
    modifiers, last = _parts(key)
    return all(modifier in _MODIFIERS for modifier in modifiers) and (len(last) == 1 or last in _KEYS)


def _same(key: str) -> str:
    """One text for all ways to write a key: "?" for "question_mark" too."""
    modifiers, last = _parts(key)
    return "+".join([*modifiers, last])
