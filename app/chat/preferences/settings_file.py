"""octavo.toml in the config folder: the user's own file, of which only what changes is rewritten.

theme = "nord"

[chat]              # what new chats begin with: the fields of ChatSettings
model = "Qwen3-4B-Q4_K_M"
temperature = 0.6

[keys]              # by action, instead of the usual ones
stop = "escape,ctrl+c"
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Collection, Iterable, Mapping, MutableMapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError

from app.chat.errors import SettingsError
from app.chat.files import quoted_path, write_text
from app.chat.preferences.settings import AppSettings, ChatSettings, checked, nearest
from app.chat.storage.rows import characters
from engine.printable import one_line, quoted
from models.errors import CopyError
from models.folders import config_folder
from models.part_file import PartFile


def settings_file() -> Path:
    """The file, which need not be there."""
    return config_folder() / "octavo.toml"


def read_settings(path: Path | None = None) -> tuple[AppSettings, list[str]]:
    """What the file says, and one sentence for each thing in it that cannot be: there, the default is used.

    path: None is `settings_file()`.
    """
    path = path or settings_file()
    try:
        content = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        return AppSettings(), []
    except OSError as error:
        return AppSettings(), [f"{quoted_path(path)} cannot be read ({error.strerror}): the defaults are used."]
    except (ValueError, RecursionError) as error:  # no UTF-8, no TOML, a number of thousands of digits, endless nesting
        return AppSettings(), [
            f"{quoted_path(path)} is no valid TOML ({one_line(str(error))}): mend it; until then the defaults are used."
        ]
    reader = _Reader(path)
    return reader.settings(content), reader.problems


def write_settings(before: AppSettings, after: AppSettings, path: Path | None = None) -> None:
    """Write what differs between two settings into the file, which is made if it is missing; all else in it stays.

    Another instance's changes stay too: only the differences are written. Raises SettingsError, and leaves the file as
    it was.
    """
    path = Path(os.path.realpath(path or settings_file()))  # a link to the file stays one
    changes = _changes(before, after)
    if not changes:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with PartFile(path, replaces=True) as part:
            text, mode = _present(path)
            os.chmod(part.part, mode)
            write_text(part, _changed(path, text, changes))
            part.finish()
    except CopyError:
        raise SettingsError(f"Another window is saving {quoted_path(path)} at this moment: try again.") from None
    except OSError as error:
        raise SettingsError(
            f"The settings cannot be written to {quoted_path(path)} ({error.strerror}): make room there, or set "
            "OCTAVO_CONFIG_DIR to a folder that you may write to."
        ) from None


class _Change(NamedTuple):
    """table: None is the top of the file. value: None takes the key away."""

    table: str | None
    key: str
    value: object


def _changes(before: AppSettings, after: AppSettings) -> list[_Change]:
    parts: list[tuple[str | None, Mapping[str, object], Mapping[str, object]]] = [
        (None, {"theme": before.theme}, {"theme": after.theme}),
        ("chat", before.chat.values(), after.chat.values()),
        ("keys", before.keys, after.keys),
    ]
    return [
        _Change(table, key, new.get(key))
        for table, old, new in parts
        for key in dict.fromkeys((*old, *new))
        if old.get(key) != new.get(key)
    ]


def _present(path: Path) -> tuple[bytes, int]:
    """Content and mode of a file; of a missing one, what they are to be."""
    try:
        return path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return b"", 0o600


def _changed(path: Path, content: bytes, changes: Iterable[_Change]) -> str:
    """The text of the file with the changes. Raises SettingsError."""
    try:
        document = tomlkit.parse(content.decode("utf-8-sig"))
    except (ValueError, RecursionError, TOMLKitError) as error:
        raise SettingsError(f"{quoted_path(path)} is no valid TOML ({one_line(str(error))}): mend it first.") from None
    for table, key, value in changes:
        if table and table not in document:
            document[table] = tomlkit.table()
        container = document[table] if table else document
        if not isinstance(container, MutableMapping):
            raise SettingsError(f"In {quoted_path(path)}, {table} is no table [{table}]: make it one first.")
        if value is None:
            container.pop(key, None)
        else:
            container[key] = characters(value) if isinstance(value, str) else value
    return tomlkit.dumps(document)


class _Reader:
    """Makes settings of what a file says; what cannot be goes to `problems`."""

    def __init__(self, path: Path) -> None:
        self.problems: list[str] = []
        self._file = quoted_path(path)

    def settings(self, content: Mapping[str, Any]) -> AppSettings:
        """All of it."""
        self._ignore_unknown(content, ("theme", "chat", "keys"))
        return AppSettings(
            chat=self._chat(self._table(content, "chat")),
            theme=self._theme(content.get("theme")),
            keys=self._keys(self._table(content, "keys")),
        )

    def _chat(self, table: Mapping[str, Any]) -> ChatSettings:
        known = [field.name for field in fields(ChatSettings)]
        self._ignore_unknown(table, known)
        values = {}
        for name in filter(table.__contains__, known):
            try:
                values[name] = checked(name, table[name])
            except SettingsError as error:
                self._use_default(str(error).removesuffix("."))
        return ChatSettings(**values)

    def _theme(self, value: object) -> str | None:
        if value is None or (isinstance(value, str) and value):
            return value
        self._use_default("theme is no name: give a text in quotes")
        return None

    def _keys(self, table: Mapping[str, Any]) -> dict[str, str]:
        keys = {}
        for action, value in table.items():
            names = value if isinstance(value, list) else [value]
            if names and all(isinstance(name, str) and name for name in names):
                keys[action] = ",".join(names)
            else:
                self._use_default(f'{quoted(action, 40)} in [keys] is no name of a key: give a text such as "ctrl+r"')
        return keys

    def _table(self, content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        table = content.get(name, {})
        if isinstance(table, dict):
            return table
        self._use_default(f"{name} is no table: write [{name}] on a line of its own, and its settings below")
        return {}

    def _ignore_unknown(self, table: Mapping[str, Any], known: Collection[str]) -> None:
        for name in table:
            if name not in known:
                likely = " or ".join(nearest(name, known))
                self.problems.append(f"In {self._file}, {quoted(name, 40)} is unknown and ignored: is it {likely}?")

    def _use_default(self, problem: str) -> None:
        self.problems.append(f"In {self._file}, {problem}; until then the default is used.")
