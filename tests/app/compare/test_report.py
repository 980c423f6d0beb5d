"""What a record looks like as text, Markdown, CSV and JSON.

After a change of the output that is wanted: UPDATE_GOLDEN=1 pytest tests/app/compare/test_report.py
"""

from __future__ import annotations

import copy
import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

import app.compare
from app.compare.conclusion import conclusion
from app.compare.record import VERSION, Record
from app.compare.report import as_csv, as_json, as_markdown, as_plain
from app.compare.results import results_of
from tests.app.compare.example_record import example_record
from tests.app.compare.fake_lane import new_record

GOLDEN = Path(__file__).parent / "golden"
SCHEMA = json.loads((Path(app.compare.__file__).parent / "record.schema.json").read_text())


@pytest.mark.parametrize(("form", "render"), [("txt", as_plain), ("md", as_markdown), ("csv", as_csv)])
def test_golden_outputs(form: str, render: Callable[[Record], str]) -> None:
    text = render(example_record())
    file = GOLDEN / f"report.{form}"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
    assert "\x1b" not in text


def test_json_follows_its_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    for record in (example_record(), new_record(("contiguous", "paged"))):
        value = json.loads(json.dumps(as_json(record)))
        Draft202012Validator(SCHEMA).validate(value)
        assert value["version"] == VERSION == SCHEMA["properties"]["version"]["const"]


def test_the_schema_describes_every_field_and_no_other() -> None:
    """It would not notice a missing or a misspelt one otherwise."""
    value = json.loads(json.dumps(as_json(example_record())))

    def spoil(change: Callable[[dict[str, Any]], object]) -> None:
        spoilt = copy.deepcopy(value)
        change(spoilt)
        with pytest.raises(ValidationError):
            Draft202012Validator(SCHEMA).validate(spoilt)

    spoil(lambda v: v.pop("busy"))
    spoil(lambda v: v["session"][0].pop("engine"))
    spoil(lambda v: v["session"][0].update(ttft=1))
    spoil(lambda v: v["raw"][0].update(engine_s="fast"))
    spoil(lambda v: v["results"]["session"][1]["ratio"].update(value=0))
    spoil(lambda v: v.update(version=2))


def test_json_has_the_samples_and_what_they_come_to() -> None:
    value = as_json(example_record())
    assert len(value["raw"]) == 21
    assert len(value["session"]) == 20
    paged = value["results"]["session"][1]
    assert paged["lane"] == "paged"
    base_s = 2 * (2.52 + 1.62 + 2.72) + 2.02 + 2.12
    assert paged["ratio"]["value"] == pytest.approx(base_s / (2 * (2.52 + 0.82 + 2.72) + 0.52 + 0.54))
    assert paged["generated_tokens"] == 7 * 32
    assert value["results"]["steps"][1]["lanes"][1]["reused_tokens"] == 976


def test_csv_has_a_line_for_each_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(example_record()))))
    found = [row for row in rows if (row["part"], row["test"], row["lane"]) == ("raw", "tg64 @ d512", "paged")]
    (row,) = found
    assert float(row["ratio"]) == pytest.approx(1.25)
    assert (row["figure"], row["n"], row["verdict"]) == ("tokens_per_s", "5", "faster")
    assert {row["part"] for row in rows} == {"session", "step", "raw"}


def test_names_from_outside_cannot_act_on_the_terminal_or_break_a_table() -> None:
    record = example_record()
    record.model = replace(record.model, file="evil\x1b[2J\nmodel|.gguf")
    record.lanes = ("contiguous", "pa|ged\n\x1b[31m", "localhost:8080")
    record.raw = [replace(s, lane=record.lanes[1]) if s.lane == "paged" else s for s in record.raw]
    record.session = [replace(s, lane=record.lanes[1]) if s.lane == "paged" else s for s in record.session]
    for text in (as_plain(record), as_markdown(record)):
        assert "\x1b" not in text
    tables = [line for line in as_markdown(record).splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in tables if "ged" in line} <= {6, 7, 9}


def test_the_sentence_says_faster_slower_and_no_difference() -> None:
    record = example_record()
    text = conclusion(results_of(record), "contiguous")
    assert text.startswith("In this session paged gave one user ")
    assert "times as many (" in text
    assert "faster in tg64 @ d512 (1.25)" in text
    assert "not different in pp512 @ d0 (" in text
    turned = conclusion(results_of(replace(record, lanes=("paged", "contiguous"))), "paged")
    assert "slower in tg64 @ d512 (0.80)" in turned
    assert "times as many" in turned


def test_the_sentence_claims_nothing_from_one_run() -> None:
    record = example_record()
    record.session = [sample for sample in record.session if sample.repeat == 0]
    record.raw = [sample for sample in record.raw if sample.round == 0]
    text = conclusion(results_of(record), "contiguous")
    assert "from too few runs to say more" in text
    assert "measured too few times to say in pp512 @ d0 (" in text
    assert "confidence" not in text


def test_equal_lanes_are_said_to_be_equal() -> None:
    record = example_record()
    record.raw = []
    base = {(s.step, s.repeat): s for s in record.session if s.variant == "flash on"}
    record.session = [replace(base[s.step, s.repeat], lane=s.lane, variant=s.variant) for s in record.session]
    assert "which is no difference (1.00 to 1.00" in conclusion(results_of(record), "contiguous")


def test_nothing_measured() -> None:
    record = new_record(("contiguous", "paged"))
    assert as_plain(record).endswith("There is nothing to compare: fewer than two lanes were measured.\n")
    assert as_csv(record).count("\n") == 1
