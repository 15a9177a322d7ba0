"""JSON Schema of the topology file: the examples are valid, and mistakes of form are found."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator as Validator

from pgm.parameters import ROWS
from pgm.topology.schema import schema
from tests.unit.topology.test_examples import FILES
from tests.unit.topology.test_load import WRONG
from tests.unit.topology.trees import GOOD, changed

# A schema has no order of texts, and so no range of values with a unit.
BEYOND = ("is out of range", "ends before it begins")
ONLY_CHECK = {"1h", "1bit/s", '"5h"', "10.0.1.19-10.0.1.10"}


@pytest.fixture(scope="module")
def validator() -> Validator:
    Validator.check_schema(schema())
    return Validator(schema(), format_checker=Validator.FORMAT_CHECKER)


def wrong_documents() -> Iterator[Any]:
    for change, _, says in WRONG:
        text = changed(change)
        try:
            document = tomllib.loads(text)
        except ValueError:  # not TOML, which editors say themselves
            continue
        is_beyond = any(mark in (says or "") for mark in BEYOND) and any(mark in change[1] for mark in ONLY_CHECK)
        yield pytest.param(document, is_beyond, id=change[1][:40])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_schema_takes_every_example(validator: Validator, path: Any) -> None:
    validator.validate(tomllib.loads(path.read_text()))


def test_schema_takes_the_good_file_of_the_tests(validator: Validator) -> None:
    validator.validate(tomllib.loads(GOOD))


@pytest.mark.parametrize(("document", "is_beyond"), list(wrong_documents()))
def test_schema_finds_mistakes_of_form(validator: Validator, document: Any, is_beyond: bool) -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)  # the message of the library prints a number of 6,000 digits
    try:
        assert validator.is_valid(document) is is_beyond
    finally:
        sys.set_int_max_str_digits(limit)


@pytest.mark.parametrize("key", ROWS)
def test_schema_takes_the_default_and_bounds_of_each_parameter(validator: Validator, key: str) -> None:
    row = ROWS[key]
    for value in (row.default, row.low, row.high):
        if value is row.default or not (row.choices or isinstance(row.default, bool)):
            spelled = row.spell(value)
            written = value if isinstance(value, bool) else int(value) if spelled.isdecimal() else spelled
            validator.validate({"version": 1, "name": "x", "parameters": {key: written}})


def test_schema_explains_every_key() -> None:
    made = schema()
    tables = [made, *made["$defs"].values()]
    assert all(
        one.get("description") or one.get("deprecated") for table in tables for one in table["properties"].values()
    )
