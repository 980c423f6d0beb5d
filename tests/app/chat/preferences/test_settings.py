"""Settings of a chat, and octavo.toml: what it may say, and what stays of it when the app changes something."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.errors import SettingsError
from app.chat.preferences.settings import AppSettings, ChatSettings
from app.chat.preferences.settings_file import read_settings, write_settings
from app.options import ENGINE_OPTIONS, REQUEST_OPTIONS
from engine.config import EngineConfig, EngineKind, KvType
from engine.sequence import SamplingParams
from models.part_file import PartFile
from tests.app.command import ROOT

FULL = ChatSettings(
    model="Qwen3-4B-Q4_K_M",
    system="Be brief.\nVery.",
    temperature=0.0,
    top_k=1,
    top_p=0.5,
    min_p=0.0,
    repeat_penalty=1.1,
    seed=0,
    max_tokens=100,
    context=4096,
    engine=EngineKind.CONTIGUOUS,
    kv_type=KvType.Q8_0,
    threads=3,
    device="CPU",
    thinking=False,
)
HAND_WRITTEN = """\
# my settings
theme = "nord"  # bluish

[keys]
stop = ["escape", "ctrl+g"]  # as in Emacs

[chat]
  # for code
temperature = 0.2   # cold
tempo = "allegro"
top_k = 'many'

[another.program]
colour = 1
"""
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
CHATS = st.builds(
    ChatSettings,
    model=st.none() | TEXT,
    system=st.none() | TEXT,
    temperature=st.floats(0, 100),
    top_k=st.integers(0, 100),
    top_p=st.floats(0.01, 1),
    seed=st.none() | st.integers(0, 2**32 - 2),
    engine=st.none() | st.sampled_from(EngineKind),
    kv_type=st.sampled_from(KvType),
    thinking=st.none() | st.booleans(),
)
APPS = st.builds(AppSettings, CHATS, st.none() | TEXT, st.dictionaries(TEXT, TEXT, max_size=3))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "octavo.toml"


def write(file: Path, text: str | bytes) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())


def only_problem(file: Path, text: str | bytes) -> str:
    """The one thing that is wrong with a file whose settings are the defaults."""
    write(file, text)
    found, problems = read_settings(file)
    assert found == AppSettings()
    (problem,) = problems
    assert str(file) in problem
    assert problem.count("\n") == 0
    return problem


def test_the_defaults_are_those_of_octavo_run(file: Path) -> None:
    found, problems = read_settings(file)
    assert (found, problems) == (AppSettings(), [])
    defaults = {option.name: option.default for option in (*REQUEST_OPTIONS, *ENGINE_OPTIONS)}
    for owner in (SamplingParams(), EngineConfig()):
        for name in vars(owner).keys() & vars(found.chat).keys():
            assert getattr(found.chat, name) == getattr(owner, name)
            assert defaults[name] in (getattr(owner, name), None) or not isinstance(defaults[name], str | int | float)


def test_all_of_it_comes_back(file: Path) -> None:
    everything = AppSettings(FULL, "nord", {"stop": "ctrl+g", "new_chat": "f3,ctrl+t"})
    write_settings(AppSettings(), everything, file)
    assert read_settings(file) == (everything, [])
    assert ChatSettings.from_values(FULL.values()) == FULL
    assert ChatSettings.from_values(ChatSettings().values()) == ChatSettings()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(APPS, min_size=1, max_size=4))
def test_any_settings_come_back(tmp_path_factory: pytest.TempPathFactory, states: list[AppSettings]) -> None:
    """Each change is written into the file that the one before has left."""
    file = tmp_path_factory.mktemp("config") / "octavo.toml"
    write(file, "# mine\n[another]\nkey = 1 # kept\n")
    before = AppSettings()
    for after in states:
        write_settings(before, after, file)
        found, problems = read_settings(file)
        assert found == after
        assert len(problems) == 1  # about [another]
        assert "key = 1 # kept" in file.read_text("utf-8")
        before = after


def test_what_the_user_wrote_stays(file: Path) -> None:
    write(file, HAND_WRITTEN)
    before, problems = read_settings(file)
    assert before == AppSettings(ChatSettings(temperature=0.2), "nord", {"stop": "escape,ctrl+g"})
    assert len(problems) == 3
    write_settings(before, replace(before, theme="dracula", chat=replace(before.chat, seed=7)), file)
    changed = HAND_WRITTEN.replace('"nord"', '"dracula"').replace("'many'\n", "'many'\nseed = 7\n")
    assert file.read_text() == changed
    after, _ = read_settings(file)
    write_settings(after, replace(after, chat=replace(after.chat, seed=None)), file)
    assert file.read_text() == changed.replace("seed = 7\n", "")


def test_a_change_of_another_instance_stays(file: Path) -> None:
    ours = theirs = AppSettings()
    write_settings(ours, replace(ours, theme="nord"), file)
    write_settings(theirs, replace(theirs, chat=replace(theirs.chat, top_k=5)), file)
    assert read_settings(file)[0] == AppSettings(ChatSettings(top_k=5), "nord")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("temperature = 101", "temperature cannot be 101: give a number from 0 to 100"),
        ("temperature = nan", "a number from 0 to 100"),
        ('temperature = "warm"', "temperature cannot be 'warm'"),
        ("temperature = true", "temperature cannot be true"),
        ("top_p = 0", "a number above 0 and up to 1"),
        ("top_k = 2.5", "top_k cannot be 2.5: give a whole number from 0 to 2147483647"),
        ("seed = 4294967295", "from 0 to 4294967294"),
        ("max_tokens = 0", "from 1"),
        ("context = -1", "context"),
        ('engine = "fast"', "give paged or contiguous"),
        ('kv_type = "q4_0"', "give f16 or q8_0"),
        ("threads = [1]", "threads cannot be [1]"),
        ("threads = 1979-05-27", "threads"),
        ('device = ""', "a text that is not empty"),
        ("model = 7", "model cannot be 7"),
        ('thinking = "yes"', "give true or false"),
        ('system = "a\\u001b[31m"\ntemprature = 1', "'temprature' is unknown and ignored: is it temperature?"),
        ("colour = 1", "is it model or system or temperature or"),
    ],
)
def test_a_wrong_value_is_named_and_the_default_used(file: Path, line: str, words: str) -> None:
    write(file, f"[chat]\nmin_p = 0.5\n{line}\n")
    found, problems = read_settings(file)
    assert found == AppSettings(ChatSettings(min_p=0.5, system=found.chat.system))
    (problem,) = problems
    assert words in problem
    assert str(file) in problem
    assert "\x1b" not in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chat = 5", "[chat]"),
        ("[[chat]]\ntop_k = 1", "[chat]"),
        ("keys = 'x'", "[keys]"),
        ("theme = 5", "theme"),
        ('theme = ""', "theme"),
        ("[keys]\nstop = 5", "'stop'"),
        ("[keys]\nstop = []", "'stop'"),
        ('[keys]\nstop = ["a", ""]', "'stop'"),
        ("temperature = 1", "'temperature' is unknown"),
        ("[chat", "no valid TOML"),
        ("theme = 1\ntheme = 2", "no valid TOML"),
        (b"theme = '\xff'", "no valid TOML"),
        ("x = " + "9" * 5000, "no valid TOML"),
        ("x = " + "[" * 5000 + "]" * 5000, "no valid TOML"),
    ],
    ids=range(14),
)
def test_a_wrong_file_is_named_and_the_defaults_used(file: Path, text: str | bytes, words: str) -> None:
    assert words in only_problem(file, text)


def test_a_file_that_cannot_be_read(file: Path) -> None:
    file.mkdir(parents=True)
    found, problems = read_settings(file)
    assert found == AppSettings()
    assert len(problems) == 1


@pytest.mark.parametrize("text", ["[chat", b"theme = '\xff'", "theme = 1\ntheme = 2"])
def test_a_broken_file_is_not_written(file: Path, text: str | bytes) -> None:
    write(file, text)
    before = file.read_bytes()
    with pytest.raises(SettingsError, match="mend"):
        write_settings(AppSettings(), AppSettings(theme="nord"), file)
    assert file.read_bytes() == before
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("text", ["chat = 5", "[[chat]]\ntop_k = 1"])
def test_a_table_that_is_none_is_not_written(file: Path, text: str) -> None:
    write(file, text)
    with pytest.raises(SettingsError, match=r"\[chat\]"):
        write_settings(AppSettings(), AppSettings(FULL), file)
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text", ["chat = {top_k = 3}", "chat.top_k = 3", "[keys]\n[chat]\ntop_k = 3", "\ufeff[chat]\ntop_k=3"]
)
def test_every_way_to_write_a_table(file: Path, text: str) -> None:
    write(file, text)
    before, problems = read_settings(file)
    assert (before, problems) == (AppSettings(ChatSettings(top_k=3)), [])
    after = AppSettings(FULL, "nord", {"stop": "f1"})
    write_settings(before, after, file)
    assert read_settings(file) == (after, [])


def test_a_new_file_is_the_owners_alone_and_an_old_one_keeps_its_mode(file: Path) -> None:
    write_settings(AppSettings(), AppSettings(theme="nord"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o640)
    write_settings(AppSettings(), AppSettings(theme="dracula"), file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(file.parent.iterdir()) == [file]


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    """As of those who keep their settings in a repository."""
    kept = tmp_path / "dotfiles" / "octavo.toml"
    write(kept, "# mine\n")
    file.parent.mkdir()
    file.symlink_to(kept)
    write_settings(AppSettings(), AppSettings(theme="nord"), file)
    assert file.is_symlink()
    assert kept.read_text() == '# mine\ntheme = "nord"\n'


def test_two_at_once_do_not_undo_each_other(file: Path) -> None:
    write(file, "")
    with PartFile(file, replaces=True), pytest.raises(SettingsError, match="Another window"):
        write_settings(AppSettings(), AppSettings(theme="nord"), file)
    assert file.read_bytes() == b""


def test_a_full_disk_leaves_the_file(file: Path) -> None:
    write(file, HAND_WRITTEN)
    code = (
        "import sys; from pathlib import Path\n"
        "from app.chat.preferences.settings import AppSettings\n"
        "from app.chat.preferences.settings_file import write_settings\n"
        "write_settings(AppSettings(), AppSettings(theme='x' * 1000), Path(sys.argv[1]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(file)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)),
    )
    assert "SettingsError: The settings cannot be written" in result.stderr
    assert file.read_text() == HAND_WRITTEN
    assert list(file.parent.iterdir()) == [file]


def test_what_another_version_wrote_is_left_out() -> None:
    values: dict[str, Any] = {"top_k": 3, "temperature": 1000, "mood": "good", "engine": "quantum", "threads": None}
    assert ChatSettings.from_values(values) == ChatSettings(top_k=3)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.5", 0.5),
        ("thinking", "off", False),
        ("thinking", "true", True),
        ("thinking", "", None),
        ("engine", "paged", EngineKind.PAGED),
        ("kv_type", "q8_0", KvType.Q8_0),
        ("top_k", "", SamplingParams().top_k),
        ("system", "Be brief.", "Be brief."),
    ],
)
def test_a_value_as_it_is_typed(name: str, text: str, value: object) -> None:
    expected = replace(FULL, **{name: value})  # type: ignore[arg-type]
    assert FULL.with_text(name, text) == expected
    assert type(getattr(FULL.with_text(name, text), name)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("temperature", "hot", "temperature cannot be 'hot': give a number from 0 to 100."),
        ("top_k", "1.5", "a whole number"),
        ("thinking", "perhaps", "true or false"),
        ("top-k", "1", "'top-k' is no setting: use top_k."),
        ("x", "", "'x' is no setting: use model or "),
    ],
)
def test_a_wrong_value_as_it_is_typed(name: str, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=r"^[^\n]*$") as caught:
        FULL.with_text(name, text)
    assert words in str(caught.value)


def test_every_option_that_a_chat_can_have_is_a_setting() -> None:
    """The others belong to one prompt alone."""
    options = {option.name for option in (*REQUEST_OPTIONS, *ENGINE_OPTIONS)}
    assert options - vars(ChatSettings()).keys() == {"stop", "raw", "n"}


def test_the_file_is_plain_toml(file: Path) -> None:
    write_settings(AppSettings(), AppSettings(FULL), file)
    assert tomllib.loads(file.read_text())["chat"] == FULL.values()
