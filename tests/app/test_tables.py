"""Tables, on terminals of several widths and elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from app.tables import Column, write_table
from tests.app.terminal import on_a_terminal

PATH = "/home/someone/models/" + "a" * 100 + ".gguf"
ROWS = (("1", "one", "llama", "10 KiB", PATH), ("12", "another\x1b[31m model\n", "qwen3moe", "1,000.5 GiB", PATH))
COLUMNS = (
    Column("", is_number=True),
    Column("name", is_key=True),
    Column("architecture", is_spare=True),
    Column("size", is_number=True),
    Column("path"),
)


def drawn(
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: Sequence[Column] = COLUMNS,
    rows: Sequence[Sequence[str]] = ROWS,
) -> list[str]:
    """Lines on a terminal of that width."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    write_table(columns, rows)
    return capsys.readouterr().out.splitlines()


def test_nothing_is_cut_in_a_file(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    write_table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines] == ["path", PATH, PATH]
    assert "another␛[31m model␊  qwen3moe" in lines[2]
    assert len({line.index(cell) for line, cell in zip(lines, ("path", PATH, PATH), strict=True)}) == 1


def test_texts_are_cut_on_a_narrow_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn(100, capsys, monkeypatch)
    assert lines[0].split() == ["name", "architecture", "size", "path"]
    assert [len(line) for line in lines[1:]] == [100, 100]
    assert lines[1].endswith("aaa…")


def test_what_is_spare_is_left_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(64, capsys, monkeypatch)[0].split() == ["name", "architecture", "size", "path"]
    lines = drawn(63, capsys, monkeypatch)
    assert lines[0].split() == ["name", "size", "path"]
    assert max(map(len, lines)) == 63


@pytest.mark.parametrize("width", [1, 20, 50])
def test_what_the_user_has_to_type_is_never_cut(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = drawn(width, capsys, monkeypatch)
    assert lines == [
        "    name                        size  path",
        " 1  one                       10 KiB  /home/someo…",
        "12  another␛[31m model␊  1,000.5 GiB  /home/someo…",
    ]


def test_absurd_lengths_and_wide_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (Column("name", is_key=True), Column("size", is_number=True))
    lines = drawn(40, capsys, monkeypatch, columns, [("模型" * 5, "1"), ("x" * 200, "2")])
    assert [cell_len(line) for line in lines] == [86, 86, 86]
    assert lines[2] == "x" * 79 + "…     2"


def test_without_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(80, capsys, monkeypatch, rows=[]) == ["  name  architecture  size  path"]


def test_a_real_terminal(tmp_path: Path) -> None:
    """Of 60 columns: the architecture and more are left out, as the name is long."""
    screen, code = on_a_terminal(["list"], variables={"OCTAVO_DATA_DIR": str(tmp_path)}, columns=60)
    titles, row = screen.splitlines()
    assert code == 0
    assert titles.split() == ["name", "size", "engine", "last", "used"]
    assert row.startswith("SmolLM2-135M-Instruct.Q4_1  93.8 MiB  paged")
