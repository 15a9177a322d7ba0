"""`pgm schema`: the same schema on standard output and in a file."""

import json
from pathlib import Path

from pgm.topology.schema import schema
from tests.cli.command import invoked


def test_schema_is_printed_or_written(tmp_path: Path) -> None:
    printed = invoked("schema", "--json")
    assert (printed.code, json.loads(printed.out)) == (0, schema())
    file = tmp_path / "pgm.schema.json"
    written = invoked("schema", "--out", str(file))
    assert (written.code, written.out, json.loads(file.read_text())) == (0, "", schema())


def test_schema_into_a_missing_folder_is_refused(tmp_path: Path) -> None:
    invoked("schema", "--out", str(tmp_path / "nowhere" / "x.json")).complains(1, "nowhere", "No such file")
